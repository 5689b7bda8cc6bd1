// Contract: libraries of device code make themselves known when they are loaded.
#include <c10/core/Buffer.h>
#include <c10/core/Error.h>
#include <stdlib.h>

namespace c10 {
namespace {

const Backend* registered[2] = {};

}  // namespace

void register_backend(DeviceType device, const Backend* backend) {
  registered[static_cast<int>(device)] = backend;
}

const Backend* backend_for(DeviceType device) {
  const Backend* backend = registered[static_cast<int>(device)];
  if (backend == nullptr) {
    set_error("Torch not compiled with CUDA or ROCm enabled");
  }
  return backend;
}

Buffer* new_buffer(size_type count, DeviceType device) {
  const Backend* backend = backend_for(device);
  void* memory = nullptr;
  // An empty tensor still owns an address, so that no function meets nullptr.
  if (backend == nullptr || !backend->allocate((count ? count : 1) * sizeof(float), &memory)) {
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
  if (buffer != nullptr) {
    backend_for(buffer->device)->release(buffer->data);
    free(buffer);
  }
}

}  // namespace c10
