#include <ATen/Ops.h>

#include <stdlib.h>

#include <c10/core/Backend.h>
#include <c10/core/Error.h>

namespace at {
namespace {

using c10::Backend;
using Binary = bool (*)(const float*, const float*, float*, size_type);

// The result when the work succeeded; otherwise nothing is left behind.
Buffer* keep_if(bool done, Buffer* out) {
  if (!done) {
    c10::delete_buffer(out);
    return nullptr;
  }
  return out;
}

bool same_device(const Buffer* a, const Buffer* b) {
  if (a->device == b->device) {
    return true;
  }
  c10::set_error("Expected all tensors to be on the same device");
  return false;
}

Buffer* binary(const Buffer* a, const Buffer* b, Binary Backend::* operation) {
  if (!same_device(a, b)) {
    return nullptr;
  }
  if (a->count != b->count) {
    c10::set_error("sizes differ: %zu and %zu values", a->count, b->count);
    return nullptr;
  }
  const Backend* backend = c10::backend_for(a->device);
  Buffer* out = backend ? c10::new_buffer(a->count, a->device) : nullptr;
  if (out == nullptr) {
    return nullptr;
  }
  return keep_if((backend->*operation)(a->data, b->data, out->data, a->count), out);
}

}  // namespace

Buffer* full(size_type count, float value, c10::DeviceType device) {
  const Backend* backend = c10::backend_for(device);
  Buffer* out = backend ? c10::new_buffer(count, device) : nullptr;
  return out ? keep_if(backend->fill(out->data, value, count), out) : nullptr;
}

Buffer* add(const Buffer* a, const Buffer* b) { return binary(a, b, &Backend::add); }

Buffer* mul(const Buffer* a, const Buffer* b) { return binary(a, b, &Backend::mul); }

Buffer* relu(const Buffer* a) {
  const Backend* backend = c10::backend_for(a->device);
  Buffer* out = backend ? c10::new_buffer(a->count, a->device) : nullptr;
  return out ? keep_if(backend->relu(a->data, out->data, a->count), out) : nullptr;
}

Buffer* sum(const Buffer* a) {
  const Backend* backend = c10::backend_for(a->device);
  Buffer* out = backend ? c10::new_buffer(1, a->device) : nullptr;
  return out ? keep_if(backend->sum(a->data, out->data, a->count), out) : nullptr;
}

Buffer* matmul(const Buffer* a, const Buffer* b, size_type m, size_type k, size_type n) {
  if (!same_device(a, b)) {
    return nullptr;
  }
  if (a->count != m * k || b->count != k * n) {
    c10::set_error("matmul: %zu and %zu values do not make (%zu, %zu) and (%zu, %zu)", a->count,
                   b->count, m, k, k, n);
    return nullptr;
  }
  const Backend* backend = c10::backend_for(a->device);
  Buffer* out = backend ? c10::new_buffer(m * n, a->device) : nullptr;
  return out ? keep_if(backend->matmul(a->data, b->data, out->data, m, k, n), out) : nullptr;
}

Buffer* to_device(const Buffer* a, c10::DeviceType device) {
  Buffer* out = c10::new_buffer(a->count, device);
  if (out == nullptr) {
    return nullptr;
  }
  float* host = static_cast<float*>(malloc((a->count + 1) * sizeof(float)));
  bool done = host != nullptr && c10::copy_to_host(a, host, a->count) &&
              c10::copy_from_host(out, host, a->count);
  free(host);
  return keep_if(done, out);
}

}  // namespace at
