// Contract: calls into the HIP runtime, written in CUDA; the error without a GPU is upstream's.
#include <c10/core/Error.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime.h>

namespace c10 {
namespace cuda {

bool check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) {
    return true;
  }
  if (device_count() == 0) {
    set_error("No HIP GPUs are available");
  } else {
    set_error("HIP error: %s (%s)", cudaGetErrorString(status), what);
  }
  return false;
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();  // the failed question must not be taken for a failed launch later
    return 0;
  }
  return count;
}

}  // namespace cuda
}  // namespace c10
