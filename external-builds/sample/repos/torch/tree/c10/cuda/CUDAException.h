// Turns a failed CUDA call into torch's own error.
#pragma once

#include <cuda_runtime.h>

#include <c10/macros/Export.h>

namespace c10 {
namespace cuda {

// True on success; otherwise sets the error, which names `what`.
C10_API bool check(cudaError_t status, const char* what);

}  // namespace cuda
}  // namespace c10

#define C10_CUDA_CHECK(expression)                      \
  do {                                                  \
    if (!c10::cuda::check((expression), #expression)) { \
      return false;                                     \
    }                                                   \
  } while (0)

#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
