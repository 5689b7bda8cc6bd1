// Contract: operators pick the backend of their operands' device; the CPU's own is here.
#include <ATen/Ops.h>
#include <c10/core/Error.h>
#include <stdlib.h>
#include <string.h>

namespace at {
namespace {

using c10::Backend;
using c10::DeviceType;

bool allocate(size_type bytes, void** memory) {
  *memory = malloc(bytes);
  if (*memory == nullptr) {
    c10::set_error("out of memory: %zu bytes", bytes);
  }
  return *memory != nullptr;
}

void release(void* memory) { free(memory); }

bool copy(void* to, const void* from, size_type bytes) {
  memcpy(to, from, bytes);
  return true;
}

bool fill(float* out, float value, size_type count) {
  for (size_type i = 0; i < count; ++i) {
    out[i] = value;
  }
  return true;
}

bool add_values(const float* a, const float* b, float* out, size_type count) {
  for (size_type i = 0; i < count; ++i) {
    out[i] = a[i] + b[i];
  }
  return true;
}

bool mul_values(const float* a, const float* b, float* out, size_type count) {
  for (size_type i = 0; i < count; ++i) {
    out[i] = a[i] * b[i];
  }
  return true;
}

const Backend backend = {allocate, release, copy, copy, fill, add_values, mul_values};

__attribute__((constructor)) void register_cpu() { c10::register_backend(DeviceType::CPU, &backend); }

// The result when the work succeeded; otherwise nothing is left behind.
Buffer* keep_if(bool done, Buffer* out) {
  if (!done) {
    c10::delete_buffer(out);
    return nullptr;
  }
  return out;
}

Buffer* binary(const Buffer* a, const Buffer* b,
               bool (*Backend::*operation)(const float*, const float*, float*, size_type)) {
  if (a->device != b->device || a->count != b->count) {
    c10::set_error("Expected all tensors to be on the same device, and of one size");
    return nullptr;
  }
  Buffer* out = c10::new_buffer(a->count, a->device);
  return out ? keep_if((c10::backend_for(a->device)->*operation)(a->data, b->data, out->data, a->count), out)
             : nullptr;
}

}  // namespace

Buffer* full(size_type count, float value, DeviceType device) {
  Buffer* out = c10::new_buffer(count, device);
  return out ? keep_if(c10::backend_for(device)->fill(out->data, value, count), out) : nullptr;
}

Buffer* add(const Buffer* a, const Buffer* b) { return binary(a, b, &Backend::add); }

Buffer* mul(const Buffer* a, const Buffer* b) { return binary(a, b, &Backend::mul); }

Buffer* to_device(const Buffer* a, DeviceType device) {
  Buffer* out = c10::new_buffer(a->count, device);
  if (out == nullptr) {
    return nullptr;
  }
  size_type bytes = a->count * sizeof(float);
  // One of the two sides is host memory: there is one device besides the CPU.
  return keep_if(device == DeviceType::CPU ? c10::backend_for(a->device)->download(out->data, a->data, bytes)
                                           : c10::backend_for(device)->upload(out->data, a->data, bytes),
                 out);
}

}  // namespace at
