// Contract: the macros by which upstream's kernels check calls and launches; hipify renames them and this file.
#pragma once

#include <c10/core/Buffer.h>
#include <cuda_runtime.h>

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
