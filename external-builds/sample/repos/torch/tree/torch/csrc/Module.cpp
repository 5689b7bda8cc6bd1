// torch._C: the operators as Python functions over capsules.
#include <ATen/Ops.h>
#include <stdlib.h>
#include <torch/csrc/buffer_capsule.h>
#include <torch/csrc/python_abi.h>
#ifdef USE_ROCM
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace {

using c10::Buffer;
using c10::DeviceType;
using c10::size_type;
using torch::unwrap;
using torch::wrap;

bool parse_device(int value, DeviceType* device) {
  if (value < 0 || value >= c10::kDeviceTypes) {
    PyErr_SetString(PyExc_ValueError, "unknown device");
    return false;
  }
  *device = static_cast<DeviceType>(value);
  return true;
}

bool read_floats(PyObject* list, float* values, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyList_GetItem(list, i);
    double value = item ? PyFloat_AsDouble(item) : -1.0;
    if (value == -1.0 && PyErr_Occurred()) {
      return false;
    }
    values[i] = static_cast<float>(value);
  }
  return true;
}

PyObject* upload(PyObject* list, Py_ssize_t count, float* host, DeviceType device) {
  if (!read_floats(list, host, count)) {
    return nullptr;
  }
  Buffer* buffer = c10::new_buffer(static_cast<size_type>(count), device);
  if (buffer != nullptr && !c10::copy_from_host(buffer, host, buffer->count)) {
    c10::delete_buffer(buffer);
    buffer = nullptr;
  }
  return wrap(buffer);
}

PyObject* from_list(PyObject*, PyObject* args) {
  PyObject* list = nullptr;
  int code = 0;
  DeviceType device;
  if (!PyArg_ParseTuple(args, "Oi", &list, &code) || !parse_device(code, &device)) {
    return nullptr;
  }
  Py_ssize_t count = PyList_Size(list);
  if (count < 0) {
    return nullptr;
  }
  float* host = static_cast<float*>(malloc((static_cast<size_type>(count) + 1) * sizeof(float)));
  if (host == nullptr) {
    c10::set_error("out of memory");
    return torch::raise_last_error();
  }
  PyObject* result = upload(list, count, host, device);
  free(host);
  return result;
}

PyObject* list_of(const float* values, Py_ssize_t count) {
  PyObject* list = PyList_New(count);
  for (Py_ssize_t i = 0; list != nullptr && i < count; ++i) {
    PyObject* item = PyFloat_FromDouble(values[i]);
    if (item == nullptr || PyList_SetItem(list, i, item) != 0) {
      Py_DecRef(list);
      return nullptr;
    }
  }
  return list;
}

PyObject* to_list(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  Buffer* buffer = nullptr;
  if (!PyArg_ParseTuple(args, "O", &capsule) || !(buffer = unwrap(capsule))) {
    return nullptr;
  }
  float* host = static_cast<float*>(malloc((buffer->count + 1) * sizeof(float)));
  if (host == nullptr || !c10::copy_to_host(buffer, host, buffer->count)) {
    free(host);
    return torch::raise_last_error();
  }
  PyObject* list = list_of(host, static_cast<Py_ssize_t>(buffer->count));
  free(host);
  return list;
}

PyObject* full(PyObject*, PyObject* args) {
  Py_ssize_t count = 0;
  float value = 0.0f;
  int code = 0;
  DeviceType device;
  if (!PyArg_ParseTuple(args, "nfi", &count, &value, &code) || !parse_device(code, &device)) {
    return nullptr;
  }
  return wrap(at::full(static_cast<size_type>(count), value, device));
}

PyObject* unary(PyObject* args, Buffer* (*operation)(const Buffer*)) {
  PyObject* capsule = nullptr;
  Buffer* buffer = nullptr;
  if (!PyArg_ParseTuple(args, "O", &capsule) || !(buffer = unwrap(capsule))) {
    return nullptr;
  }
  return wrap(operation(buffer));
}

PyObject* binary(PyObject* args, Buffer* (*operation)(const Buffer*, const Buffer*)) {
  PyObject* left = nullptr;
  PyObject* right = nullptr;
  Buffer* a = nullptr;
  Buffer* b = nullptr;
  if (!PyArg_ParseTuple(args, "OO", &left, &right) || !(a = unwrap(left)) || !(b = unwrap(right))) {
    return nullptr;
  }
  return wrap(operation(a, b));
}

PyObject* relu(PyObject*, PyObject* args) { return unary(args, at::relu); }
PyObject* sum(PyObject*, PyObject* args) { return unary(args, at::sum); }
PyObject* add(PyObject*, PyObject* args) { return binary(args, at::add); }
PyObject* mul(PyObject*, PyObject* args) { return binary(args, at::mul); }

PyObject* matmul(PyObject*, PyObject* args) {
  PyObject* left = nullptr;
  PyObject* right = nullptr;
  Py_ssize_t m = 0;
  Py_ssize_t k = 0;
  Py_ssize_t n = 0;
  Buffer* a = nullptr;
  Buffer* b = nullptr;
  if (!PyArg_ParseTuple(args, "OOnnn", &left, &right, &m, &k, &n) || !(a = unwrap(left)) ||
      !(b = unwrap(right))) {
    return nullptr;
  }
  return wrap(at::matmul(a, b, static_cast<size_type>(m), static_cast<size_type>(k),
                         static_cast<size_type>(n)));
}

PyObject* to_device(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  int code = 0;
  DeviceType device;
  Buffer* buffer = nullptr;
  if (!PyArg_ParseTuple(args, "Oi", &capsule, &code) || !parse_device(code, &device) ||
      !(buffer = unwrap(capsule))) {
    return nullptr;
  }
  return wrap(at::to_device(buffer, device));
}

PyObject* get_device_count(PyObject*, PyObject*) {
#ifdef USE_ROCM
  return PyLong_FromSsize_t(c10::cuda::device_count());
#else
  return PyLong_FromSsize_t(0);
#endif
}

PyObject* get_arch_flags(PyObject*, PyObject*) {
#ifdef USE_ROCM
  return PyUnicode_FromString(TORCH_ARCH_FLAGS);
#else
  return torch::new_none();
#endif
}

PyMethodDef methods[] = {
    {"from_list", from_list, METH_VARARGS, "from_list(values, device) -> buffer"},
    {"to_list", to_list, METH_VARARGS, "to_list(buffer) -> values"},
    {"full", full, METH_VARARGS, "full(count, value, device) -> buffer"},
    {"add", add, METH_VARARGS, "add(a, b) -> buffer"},
    {"mul", mul, METH_VARARGS, "mul(a, b) -> buffer"},
    {"relu", relu, METH_VARARGS, "relu(a) -> buffer"},
    {"sum", sum, METH_VARARGS, "sum(a) -> buffer of one value"},
    {"matmul", matmul, METH_VARARGS, "matmul(a, b, m, k, n) -> buffer"},
    {"to_device", to_device, METH_VARARGS, "to_device(a, device) -> buffer"},
    {"_cuda_getDeviceCount", get_device_count, METH_VARARGS, "devices of this machine"},
    {"_cuda_getArchFlags", get_arch_flags, METH_VARARGS, "targets of the device code, or None"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "torch._C", nullptr, -1,     methods,
                      nullptr,               nullptr,    nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create2(&module, PYTHON_API_VERSION); }
