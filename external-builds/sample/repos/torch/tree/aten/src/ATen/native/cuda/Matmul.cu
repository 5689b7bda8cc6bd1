#include <cuda_runtime.h>

#include <ATen/native/cuda/Kernels.cuh>
#include <c10/cuda/CUDAException.h>

namespace at {
namespace native {
namespace {

// One thread for each element of the result.
__global__ void matmul_kernel(const float* a, const float* b, float* out, size_type m, size_type k,
                              size_type n) {
  size_type item = static_cast<size_type>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (item >= m * n) {
    return;
  }
  size_type row = item / n;
  size_type column = item % n;
  float total = 0.0f;
  for (size_type i = 0; i < k; ++i) {
    total += a[row * k + i] * b[i * n + column];
  }
  out[item] = total;
}

}  // namespace

bool matmul_cuda(const float* a, const float* b, float* out, size_type m, size_type k,
                 size_type n) {
  matmul_kernel<<<blocks_for(m * n), kThreads>>>(a, b, out, m, k, n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

}  // namespace native
}  // namespace at
