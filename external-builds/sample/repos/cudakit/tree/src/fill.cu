// Contract: sources of a submodule that a parent compiles into its own library.
#include <cuda_runtime.h>
#include <cudakit/fill.cuh>

namespace cudakit {
namespace {

constexpr unsigned kThreads = 128;

// At least one block: an empty grid is an error.
unsigned blocks_for(size_type count) {
  return count ? static_cast<unsigned>((count + kThreads - 1) / kThreads) : 1u;
}

__global__ void fill_kernel(float* out, float value, size_type count) {
  size_type i = static_cast<size_type>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) {
    out[i] = value;
  }
}

__global__ void scale_kernel(float* data, float factor, size_type count) {
  size_type i = static_cast<size_type>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) {
    data[i] *= factor;
  }
}

}  // namespace

cudaError_t fill(float* out, float value, size_type count) {
  fill_kernel<<<blocks_for(count), kThreads>>>(out, value, count);
  return cudaGetLastError();
}

cudaError_t scale(float* data, float factor, size_type count) {
  scale_kernel<<<blocks_for(count), kThreads>>>(data, factor, count);
  return cudaGetLastError();
}

}  // namespace cudakit
