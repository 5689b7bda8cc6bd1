#include <cuda_runtime.h>

#include <c10/cuda/CUDAException.h>

#include "kernels.h"

namespace vision {
namespace ops {
namespace {

constexpr unsigned kThreads = 256;

__device__ float larger(float a, float b) { return a > b ? a : b; }
__device__ float smaller(float a, float b) { return a < b ? a : b; }

__device__ float area(const float* box) { return (box[2] - box[0]) * (box[3] - box[1]); }

// One thread for each pair of boxes.
__global__ void overlaps_kernel(const float* boxes, float* suppressed, size_type count,
                                float threshold) {
  size_type pair = static_cast<size_type>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pair >= count * count) {
    return;
  }
  const float* a = boxes + 4 * (pair / count);
  const float* b = boxes + 4 * (pair % count);
  float width = larger(smaller(a[2], b[2]) - larger(a[0], b[0]), 0.0f);
  float height = larger(smaller(a[3], b[3]) - larger(a[1], b[1]), 0.0f);
  float shared = width * height;
  suppressed[pair] = shared > threshold * (area(a) + area(b) - shared) ? 1.0f : 0.0f;
}

}  // namespace

bool overlaps_cuda(const float* boxes, float* suppressed, size_type count, float threshold) {
  unsigned blocks = static_cast<unsigned>((count * count + kThreads - 1) / kThreads);
  overlaps_kernel<<<blocks ? blocks : 1u, kThreads>>>(boxes, suppressed, count, threshold);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

}  // namespace ops
}  // namespace vision
