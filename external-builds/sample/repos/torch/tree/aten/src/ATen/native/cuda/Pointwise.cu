#include <cuda_runtime.h>

#include <ATen/native/cuda/Kernels.cuh>
#include <c10/cuda/CUDAException.h>

namespace at {
namespace native {
namespace {

__global__ void add_kernel(const float* a, const float* b, float* out, size_type count) {
  size_type i = static_cast<size_type>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) {
    out[i] = a[i] + b[i];
  }
}

__global__ void mul_kernel(const float* a, const float* b, float* out, size_type count) {
  size_type i = static_cast<size_type>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) {
    out[i] = a[i] * b[i];
  }
}

__global__ void relu_kernel(const float* a, float* out, size_type count) {
  size_type i = static_cast<size_type>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) {
    out[i] = a[i] < 0.0f ? 0.0f : a[i];
  }
}

}  // namespace

bool add_cuda(const float* a, const float* b, float* out, size_type count) {
  add_kernel<<<blocks_for(count), kThreads>>>(a, b, out, count);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

bool mul_cuda(const float* a, const float* b, float* out, size_type count) {
  mul_kernel<<<blocks_for(count), kThreads>>>(a, b, out, count);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

bool relu_cuda(const float* a, float* out, size_type count) {
  relu_kernel<<<blocks_for(count), kThreads>>>(a, out, count);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

}  // namespace native
}  // namespace at
