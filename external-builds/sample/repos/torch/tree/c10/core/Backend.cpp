#include <c10/core/Backend.h>

#include <c10/core/Error.h>

namespace c10 {
namespace {

const Backend* registered[kDeviceTypes] = {};

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

}  // namespace c10
