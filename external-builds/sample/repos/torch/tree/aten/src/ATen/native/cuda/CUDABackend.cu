// The device's backend. Loading libtorch_hip is what makes it known.
#include <cuda_runtime.h>
#include <cudakit/fill.cuh>

#include <ATen/native/cuda/Kernels.cuh>
#include <c10/core/Backend.h>
#include <c10/cuda/CUDAException.h>

namespace at {
namespace native {
namespace {

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

const c10::Backend backend = {"cuda",   allocate, release,   upload,   download,   fill,
                              add_cuda, mul_cuda, relu_cuda, sum_cuda, matmul_cuda};

__attribute__((constructor)) void register_cuda() {
  c10::register_backend(c10::DeviceType::CUDA, &backend);
}

}  // namespace
}  // namespace native
}  // namespace at
