// torchvision._C: box operators over torch's buffers, on the device the buffers are on.
#include <torch/csrc/extension.h>

#include "ops/cpu/kernels.h"
#ifdef USE_ROCM
#include "ops/hip/kernels.h"
#endif

namespace {

using at::Buffer;
using c10::DeviceType;
using c10::size_type;

bool same_device(const Buffer* a, const Buffer* b) {
  if (a->device == b->device) {
    return true;
  }
  c10::set_error("Expected all tensors to be on the same device");
  return false;
}

bool find_overlaps(const Buffer* boxes, Buffer* out, size_type count, float threshold) {
  if (boxes->device == DeviceType::CPU) {
    vision::ops::overlaps_cpu(boxes->data, out->data, count, threshold);
    return true;
  }
#ifdef USE_ROCM
  return vision::ops::overlaps_cuda(boxes->data, out->data, count, threshold);
#else
  c10::set_error("torchvision was built without device code");
  return false;
#endif
}

bool pool(const Buffer* image, const Buffer* boxes, Buffer* out, size_type height, size_type width,
          size_type bins) {
  size_type regions = boxes->count / 4;
  if (image->device == DeviceType::CPU) {
    vision::ops::roi_pool_cpu(image->data, boxes->data, out->data, regions, height, width, bins);
    return true;
  }
#ifdef USE_ROCM
  return vision::ops::roi_pool_cuda(image->data, boxes->data, out->data, regions, height, width,
                                   bins);
#else
  c10::set_error("torchvision was built without device code");
  return false;
#endif
}

PyObject* finish(bool done, Buffer* out) {
  if (!done) {
    c10::delete_buffer(out);
    return torch::raise_last_error();
  }
  return torch::wrap(out);
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
  return finish(out != nullptr && find_overlaps(boxes, out, count, threshold), out);
}

PyObject* roi_pool(PyObject*, PyObject* args) {
  PyObject* image_capsule = nullptr;
  PyObject* boxes_capsule = nullptr;
  Py_ssize_t height = 0;
  Py_ssize_t width = 0;
  Py_ssize_t bins = 0;
  Buffer* image = nullptr;
  Buffer* boxes = nullptr;
  if (!PyArg_ParseTuple(args, "OOnnn", &image_capsule, &boxes_capsule, &height, &width, &bins) ||
      !(image = torch::unwrap(image_capsule)) || !(boxes = torch::unwrap(boxes_capsule))) {
    return nullptr;
  }
  size_type cells = static_cast<size_type>(bins) * static_cast<size_type>(bins);
  Buffer* out = same_device(image, boxes) ? c10::new_buffer(boxes->count / 4 * cells, image->device)
                                          : nullptr;
  bool done = out != nullptr && pool(image, boxes, out, static_cast<size_type>(height),
                                     static_cast<size_type>(width), static_cast<size_type>(bins));
  return finish(done, out);
}

PyMethodDef methods[] = {
    {"overlaps", overlaps, METH_VARARGS, "overlaps(boxes, threshold) -> buffer of count * count"},
    {"roi_pool", roi_pool, METH_VARARGS, "roi_pool(image, boxes, height, width, bins) -> buffer"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "torchvision._C", nullptr, -1,     methods,
                      nullptr,               nullptr,          nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create2(&module, PYTHON_API_VERSION); }
