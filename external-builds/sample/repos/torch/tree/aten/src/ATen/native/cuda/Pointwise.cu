// Contract: libtorch_hip.so, kernels in CUDA that hipify moves to native/hip, with code of a submodule in the library.
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <cudakit/fill.cuh>

namespace at {
namespace native {
namespace {

using c10::size_type;

constexpr unsigned kThreads = 256;

// Blocks of kThreads that cover `count` items; at least one, since an empty grid is an error.
unsigned blocks_for(size_type count) {
  return count ? static_cast<unsigned>((count + kThreads - 1) / kThreads) : 1u;
}

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

bool allocate(size_type bytes, void** memory) {
  C10_CUDA_CHECK(cudaMalloc(memory, bytes));
  return true;
}

void release(void* memory) { (void)cudaFree(memory); }

bool upload(void* memory, const void* host, size_type bytes) {
  C10_CUDA_CHECK(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice));
  return true;
}

bool download(void* host, const void* memory, size_type bytes) {
  C10_CUDA_CHECK(cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost));
  return true;
}

bool fill(float* out, float value, size_type count) {
  C10_CUDA_CHECK(cudakit::fill(out, value, count));
  return true;
}

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

const c10::Backend backend = {allocate, release, upload, download, fill, add_cuda, mul_cuda};

__attribute__((constructor)) void register_cuda() {
  c10::register_backend(c10::DeviceType::CUDA, &backend);
}

}  // namespace
}  // namespace native
}  // namespace at
