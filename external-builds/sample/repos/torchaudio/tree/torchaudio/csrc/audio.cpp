// torchaudio._torchaudio: signal functions over torch's buffers, on the CPU.
#include <math.h>
#include <torch/csrc/extension.h>

namespace {

using at::Buffer;
using c10::size_type;

constexpr double kPi = 3.14159265358979323846;
// How many zero crossings of the filter are kept at each side.
constexpr double kFilterWidth = 6.0;

Buffer* cpu_buffer(PyObject* capsule) {
  Buffer* buffer = torch::unwrap(capsule);
  if (buffer != nullptr && buffer->device != c10::DeviceType::CPU) {
    PyErr_SetString(PyExc_RuntimeError, "torchaudio works on CPU tensors only");
    return nullptr;
  }
  return buffer;
}

// A sinc in a Hann window: the weight of a sample `distance` samples of the slower rate away.
double weight(double distance) {
  if (fabs(distance) >= kFilterWidth) {
    return 0.0;
  }
  double window = cos(distance * kPi / kFilterWidth / 2.0);
  double angle = distance * kPi;
  double sinc = angle == 0.0 ? 1.0 : sin(angle) / angle;
  return sinc * window * window;
}

void resample_into(const Buffer* in, Buffer* out, double from, double to) {
  double slower = from < to ? 1.0 : to / from;
  for (size_type i = 0; i < out->count; ++i) {
    double center = static_cast<double>(i) * from / to;
    double reach = kFilterWidth / slower;
    double first = ceil(center - reach);
    double total = 0.0;
    for (double j = first < 0.0 ? 0.0 : first; j <= center + reach; j += 1.0) {
      size_type index = static_cast<size_type>(j);
      if (index >= in->count) {
        break;
      }
      total += in->data[index] * weight((j - center) * slower) * slower;
    }
    out->data[i] = static_cast<float>(total);
  }
}

PyObject* resample(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  Py_ssize_t from = 0;
  Py_ssize_t to = 0;
  Buffer* in = nullptr;
  if (!PyArg_ParseTuple(args, "Onn", &capsule, &from, &to) || !(in = cpu_buffer(capsule))) {
    return nullptr;
  }
  if (from < 1 || to < 1) {
    PyErr_SetString(PyExc_ValueError, "frequencies must be positive");
    return nullptr;
  }
  // As many samples as fit into the same time, the last one begun included.
  size_type rate_in = static_cast<size_type>(from);
  size_type rate_out = static_cast<size_type>(to);
  size_type count = (in->count * rate_out + rate_in - 1) / rate_in;
  Buffer* out = c10::new_buffer(count, c10::DeviceType::CPU);
  if (out != nullptr) {
    resample_into(in, out, static_cast<double>(from), static_cast<double>(to));
  }
  return torch::wrap(out);
}

// 20 decibels are a factor of 10 in amplitude.
PyObject* gain(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  double decibels = 0.0;
  Buffer* in = nullptr;
  if (!PyArg_ParseTuple(args, "Od", &capsule, &decibels) || !(in = cpu_buffer(capsule))) {
    return nullptr;
  }
  // Through torch's own operators, so that libtorch_cpu does the work.
  Buffer* factor =
      at::full(in->count, static_cast<float>(pow(10.0, decibels / 20.0)), c10::DeviceType::CPU);
  Buffer* out = factor ? at::mul(in, factor) : nullptr;
  c10::delete_buffer(factor);
  return torch::wrap(out);
}

PyMethodDef methods[] = {
    {"resample", resample, METH_VARARGS, "resample(buffer, from_hz, to_hz) -> buffer"},
    {"gain", gain, METH_VARARGS, "gain(buffer, decibels) -> buffer"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "torchaudio._torchaudio", nullptr, -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__torchaudio(void) { return PyModule_Create2(&module, PYTHON_API_VERSION); }
