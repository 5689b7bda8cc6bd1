// Contract: triton._C.libtriton, a compiled module that torch's wheel depends on by exact version.
#include "python_abi.h"

namespace {

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

PyMethodDef methods[] = {
    {"cdiv", cdiv, METH_VARARGS, "cdiv(count, block): blocks that cover count items"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "triton._C.libtriton", nullptr, -1, methods, nullptr,
                      nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_libtriton(void) { return PyModule_Create2(&module, PYTHON_API_VERSION); }
