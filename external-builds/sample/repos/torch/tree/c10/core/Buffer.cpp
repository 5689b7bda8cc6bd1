#include <c10/core/Buffer.h>

#include <stdlib.h>

#include <c10/core/Backend.h>
#include <c10/core/Error.h>

namespace c10 {
namespace {

bool same_count(const Buffer* buffer, size_type count) {
  if (buffer->count == count) {
    return true;
  }
  set_error("expected %zu values but got %zu", buffer->count, count);
  return false;
}

}  // namespace

Buffer* new_buffer(size_type count, DeviceType device) {
  const Backend* backend = backend_for(device);
  if (backend == nullptr) {
    return nullptr;
  }
  void* memory = nullptr;
  // An empty tensor still owns an address, so that no function meets nullptr.
  size_type bytes = (count ? count : 1) * sizeof(float);
  if (!backend->allocate(bytes, &memory)) {
    return nullptr;
  }
  Buffer* buffer = static_cast<Buffer*>(malloc(sizeof(Buffer)));
  if (buffer == nullptr) {
    backend->release(memory);
    set_error("out of memory");
    return nullptr;
  }
  *buffer = Buffer{static_cast<float*>(memory), count, device};
  return buffer;
}

void delete_buffer(Buffer* buffer) {
  if (buffer == nullptr) {
    return;
  }
  const Backend* backend = backend_for(buffer->device);
  if (backend != nullptr) {
    backend->release(buffer->data);
  }
  free(buffer);
}

bool copy_from_host(Buffer* buffer, const float* host, size_type count) {
  const Backend* backend = backend_for(buffer->device);
  return backend != nullptr && same_count(buffer, count) &&
         backend->upload(buffer->data, host, count * sizeof(float));
}

bool copy_to_host(const Buffer* buffer, float* host, size_type count) {
  const Backend* backend = backend_for(buffer->device);
  return backend != nullptr && same_count(buffer, count) &&
         backend->download(host, buffer->data, count * sizeof(float));
}

}  // namespace c10
