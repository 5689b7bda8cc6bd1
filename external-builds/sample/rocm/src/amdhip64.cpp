// Contract: libamdhip64.so.6 on a machine without a GPU: every call that needs a device says so.
#include <hip/hip_runtime_api.h>

static thread_local hipError_t last_error = hipSuccess;

static hipError_t answer(hipError_t error) {
  if (error != hipSuccess) last_error = error;
  return error;
}

static hipError_t no_device() { return answer(hipErrorNoDevice); }

extern "C" {

hipError_t hipRuntimeGetVersion(int *version) {
  if (!version) return answer(hipErrorInvalidValue);
  *version = HIP_VERSION;
  return hipSuccess;
}

hipError_t hipGetDeviceCount(int *count) {
  if (!count) return answer(hipErrorInvalidValue);
  *count = 0;
  return no_device();
}

hipError_t hipGetLastError(void) {
  hipError_t error = last_error;
  last_error = hipSuccess;
  return error;
}

hipError_t hipDeviceSynchronize(void) { return no_device(); }
hipError_t hipMalloc(void **, size_t) { return no_device(); }
hipError_t hipFree(void *) { return no_device(); }
hipError_t hipMemcpy(void *, const void *, size_t, hipMemcpyKind) { return no_device(); }
hipError_t hipLaunchKernel(const void *, dim3, dim3, void **, size_t, hipStream_t) { return no_device(); }

#define HIP_ERRORS(X)                                                        \
  X(hipSuccess, "no error")                                                  \
  X(hipErrorInvalidValue, "invalid argument")                                \
  X(hipErrorOutOfMemory, "out of memory")                                    \
  X(hipErrorInvalidConfiguration, "invalid configuration argument")          \
  X(hipErrorInvalidDeviceFunction, "invalid device function")                \
  X(hipErrorNoDevice, "no ROCm-capable device is detected")                  \
  X(hipErrorNoBinaryForGpu, "no kernel image is available for execution on the device") \
  X(hipErrorLaunchFailure, "unspecified launch failure")                     \
  X(hipErrorUnknown, "unknown error")

const char *hipGetErrorName(hipError_t error) {
  switch (error) {
#define NAME(error, text) case error: return #error;
    HIP_ERRORS(NAME)
  }
  return "hipErrorUnknown";
}

const char *hipGetErrorString(hipError_t error) {
  switch (error) {
#define TEXT(error, text) case error: return text;
    HIP_ERRORS(TEXT)
  }
  return "unknown error";
}

// What clang's host code calls: one registration a module, and the configuration of a <<<…>>> launch.

static thread_local struct {
  dim3 grid, block;
  size_t shared;
  hipStream_t stream;
} call;

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t stream) {
  call.grid = grid, call.block = block, call.shared = shared, call.stream = stream;
  return hipSuccess;
}

hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, hipStream_t *stream) {
  *grid = call.grid, *block = call.block, *shared = call.shared, *stream = call.stream;
  return hipSuccess;
}

void **__hipRegisterFatBinary(const void *) {
  static void *modules = nullptr;
  return &modules;
}
void __hipUnregisterFatBinary(void **) {}
void __hipRegisterFunction(void **, const void *, char *, const char *, unsigned int, void *, void *, dim3 *,
                           dim3 *, int *) {}
void __hipRegisterVar(void **, void *, char *, char *, int, size_t, int, int) {}
void __hipRegisterManagedVar(void **, void **, void *, const char *, size_t, unsigned) {}
}
