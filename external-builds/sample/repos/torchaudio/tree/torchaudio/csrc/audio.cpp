// Contract: an extension on the CPU that links torch's libraries: libtorch_cpu does its work.
#include <math.h>
#include <torch/csrc/extension.h>

namespace {

using c10::Buffer;

// 20 decibels are a factor of 10 in amplitude.
PyObject* gain(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  double decibels = 0.0;
  Buffer* in = nullptr;
  if (!PyArg_ParseTuple(args, "Od", &capsule, &decibels) || !(in = torch::unwrap(capsule))) {
    return nullptr;
  }
  Buffer* factor = at::full(in->count, static_cast<float>(pow(10.0, decibels / 20.0)), in->device);
  Buffer* out = factor ? at::mul(in, factor) : nullptr;
  c10::delete_buffer(factor);
  return torch::wrap(out);
}

PyMethodDef methods[] = {
    {"gain", gain, METH_VARARGS, "gain(buffer, decibels) -> buffer"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "torchaudio._torchaudio", nullptr, -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__torchaudio(void) { return PyModule_Create2(&module, PYTHON_API_VERSION); }
