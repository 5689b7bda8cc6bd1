// Contract: torch._C, which needs all of torch's libraries and answers `_cuda_getDeviceCount` and `_cuda_getArchFlags`.
#include <torch/csrc/extension.h>
#ifdef USE_ROCM
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace {

using c10::Buffer;
using c10::DeviceType;
using c10::size_type;
using torch::unwrap;
using torch::wrap;

PyObject* from_list(PyObject*, PyObject* args) {
  PyObject* list = nullptr;
  if (!PyArg_ParseTuple(args, "O", &list)) {
    return nullptr;
  }
  Py_ssize_t count = PyList_Size(list);
  Buffer* buffer = count < 0 ? nullptr : c10::new_buffer(static_cast<size_type>(count), DeviceType::CPU);
  for (Py_ssize_t i = 0; buffer != nullptr && i < count; ++i) {
    double value = PyFloat_AsDouble(PyList_GetItem(list, i));
    if (value == -1.0 && PyErr_Occurred()) {
      c10::delete_buffer(buffer);
      return nullptr;
    }
    buffer->data[i] = static_cast<float>(value);
  }
  return count < 0 ? nullptr : wrap(buffer);
}

PyObject* to_list(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  Buffer* buffer = nullptr;
  if (!PyArg_ParseTuple(args, "O", &capsule) || !(buffer = unwrap(capsule))) {
    return nullptr;
  }
  Py_ssize_t count = static_cast<Py_ssize_t>(buffer->count);
  PyObject* list = PyList_New(count);
  for (Py_ssize_t i = 0; list != nullptr && i < count; ++i) {
    PyObject* item = PyFloat_FromDouble(buffer->data[i]);
    if (item == nullptr || PyList_SetItem(list, i, item) != 0) {
      Py_DecRef(list);
      return nullptr;
    }
  }
  return list;
}

PyObject* full(PyObject*, PyObject* args) {
  Py_ssize_t count = 0;
  float value = 0.0f;
  int device = 0;
  if (!PyArg_ParseTuple(args, "nfi", &count, &value, &device)) {
    return nullptr;
  }
  return wrap(at::full(static_cast<size_type>(count), value, static_cast<DeviceType>(device)));
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

PyObject* add(PyObject*, PyObject* args) { return binary(args, at::add); }
PyObject* mul(PyObject*, PyObject* args) { return binary(args, at::mul); }

PyObject* to_device(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  int device = 0;
  Buffer* buffer = nullptr;
  if (!PyArg_ParseTuple(args, "Oi", &capsule, &device) || !(buffer = unwrap(capsule))) {
    return nullptr;
  }
  return wrap(at::to_device(buffer, static_cast<DeviceType>(device)));
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
  return PyUnicode_FromString("");
#endif
}

PyMethodDef methods[] = {
    {"from_list", from_list, METH_VARARGS, "from_list(values) -> buffer on the CPU"},
    {"to_list", to_list, METH_VARARGS, "to_list(buffer on the CPU) -> values"},
    {"full", full, METH_VARARGS, "full(count, value, device) -> buffer"},
    {"add", add, METH_VARARGS, "add(a, b) -> buffer"},
    {"mul", mul, METH_VARARGS, "mul(a, b) -> buffer"},
    {"to_device", to_device, METH_VARARGS, "to_device(a, device) -> buffer"},
    {"_cuda_getDeviceCount", get_device_count, METH_VARARGS, "devices of this machine"},
    {"_cuda_getArchFlags", get_arch_flags, METH_VARARGS, "targets of the device code, or nothing"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "torch._C", nullptr, -1,     methods,
                      nullptr,               nullptr,    nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create2(&module, PYTHON_API_VERSION); }
