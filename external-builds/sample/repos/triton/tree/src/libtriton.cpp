// triton._C.libtriton: the arithmetic of launches, and what is known of targets.
#include "python_abi.h"

namespace {

// The threads that run in lockstep on a target such as gfx942 or gfx1100: 0 when unknown.
Py_ssize_t lockstep_threads(const char* target) {
  if (target[0] != 'g' || target[1] != 'f' || target[2] != 'x') {
    return 0;
  }
  Py_ssize_t digits = 0;
  while (target[3 + digits] != '\0') {
    ++digits;
  }
  // gfx9… is GCN and CDNA; gfx10… and later is RDNA.
  return digits < 3 ? 0 : target[3] == '9' && digits == 3 ? 64 : target[3] == '1' && digits == 4 ? 32 : 0;
}

PyObject* cdiv(PyObject*, PyObject* args) {
  Py_ssize_t count = 0;
  Py_ssize_t block = 0;
  if (!PyArg_ParseTuple(args, "nn", &count, &block)) {
    return nullptr;
  }
  if (block <= 0 || count < 0) {
    PyErr_SetString(PyExc_ValueError, "cdiv needs a count from 0 on and a block from 1 on");
    return nullptr;
  }
  return PyLong_FromSsize_t(count / block + (count % block != 0));
}

PyObject* next_power_of_2(PyObject*, PyObject* args) {
  Py_ssize_t value = 0;
  if (!PyArg_ParseTuple(args, "n", &value)) {
    return nullptr;
  }
  if (value < 1 || value > (Py_ssize_t(1) << 62)) {
    PyErr_SetString(PyExc_ValueError, "next_power_of_2 needs a value from 1 to 2**62");
    return nullptr;
  }
  Py_ssize_t power = 1;
  while (power < value) {
    power *= 2;
  }
  return PyLong_FromSsize_t(power);
}

PyObject* warp_size(PyObject*, PyObject* args) {
  const char* target = nullptr;
  if (!PyArg_ParseTuple(args, "s", &target)) {
    return nullptr;
  }
  Py_ssize_t threads = lockstep_threads(target);
  if (threads == 0) {
    PyErr_SetString(PyExc_ValueError, "unknown target");
    return nullptr;
  }
  return PyLong_FromSsize_t(threads);
}

PyMethodDef methods[] = {
    {"cdiv", cdiv, METH_VARARGS, "cdiv(count, block): blocks that cover count items"},
    {"next_power_of_2", next_power_of_2, METH_VARARGS, "the smallest power of 2 not below value"},
    {"warp_size", warp_size, METH_VARARGS, "warp_size(target): threads in lockstep"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "triton._C.libtriton", nullptr, -1, methods, nullptr,
                      nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_libtriton(void) { return PyModule_Create2(&module, PYTHON_API_VERSION); }
