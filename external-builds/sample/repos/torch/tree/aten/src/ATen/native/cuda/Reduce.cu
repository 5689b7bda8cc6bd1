#include <cuda_runtime.h>

#include <ATen/native/cuda/Kernels.cuh>
#include <c10/cuda/CUDAException.h>

namespace at {
namespace native {
namespace {

// One block; thread t adds the items t, t + kThreads, … into its own partial sum.
__global__ void partial_sum_kernel(const float* a, float* partial, size_type count) {
  float total = 0.0f;
  for (size_type i = threadIdx.x; i < count; i += blockDim.x) {
    total += a[i];
  }
  partial[threadIdx.x] = total;
}

__global__ void final_sum_kernel(const float* partial, float* out, unsigned count) {
  float total = 0.0f;
  for (unsigned i = 0; i < count; ++i) {
    total += partial[i];
  }
  *out = total;
}

bool reduce(const float* a, float* partial, float* out, size_type count) {
  partial_sum_kernel<<<1, kThreads>>>(a, partial, count);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  final_sum_kernel<<<1, 1>>>(partial, out, kThreads);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  return true;
}

}  // namespace

bool sum_cuda(const float* a, float* out, size_type count) {
  void* partial = nullptr;
  C10_CUDA_CHECK(cudaMalloc(&partial, kThreads * sizeof(float)));
  bool done = reduce(a, static_cast<float*>(partial), out, count);
  (void)cudaFree(partial);
  return done;
}

}  // namespace native
}  // namespace at
