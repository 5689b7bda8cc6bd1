// Contract: torchvision._C, an extension whose device code is optional and for exactly the targets asked for.
#include <torch/csrc/extension.h>

#include "ops/overlap.h"
#ifdef USE_ROCM
#include "ops/hip/nms_kernel.h"
#endif

namespace {

using c10::Buffer;
using c10::size_type;

bool find_overlaps(const Buffer* boxes, Buffer* out, size_type count, float threshold) {
  if (boxes->device == c10::DeviceType::CPU) {
    for (size_type pair = 0; pair < count * count; ++pair) {
      out->data[pair] =
          vision::overlap(boxes->data + 4 * (pair / count), boxes->data + 4 * (pair % count), threshold);
    }
    return true;
  }
#ifdef USE_ROCM
  return vision::overlaps_cuda(boxes->data, out->data, count, threshold);
#else
  c10::set_error("torchvision was built without device code");
  return false;
#endif
}

PyObject* overlaps(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  float threshold = 0.0f;
  Buffer* boxes = nullptr;
  if (!PyArg_ParseTuple(args, "Of", &capsule, &threshold) || !(boxes = torch::unwrap(capsule))) {
    return nullptr;
  }
  size_type count = boxes->count / 4;
  Buffer* out = c10::new_buffer(count * count, boxes->device);
  if (out != nullptr && !find_overlaps(boxes, out, count, threshold)) {
    c10::delete_buffer(out);
    out = nullptr;
  }
  return torch::wrap(out);
}

PyMethodDef methods[] = {
    {"overlaps", overlaps, METH_VARARGS, "overlaps(boxes, threshold) -> buffer of count * count"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "torchvision._C", nullptr, -1,     methods,
                      nullptr,               nullptr,          nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create2(&module, PYTHON_API_VERSION); }
