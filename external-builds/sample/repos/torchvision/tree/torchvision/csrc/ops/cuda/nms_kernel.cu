// Contract: a kernel in CUDA that hipify rewrites while the project is built.
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>

#include "../overlap.h"
#include "nms_kernel.h"

namespace vision {
namespace {

using c10::size_type;

constexpr unsigned kThreads = 256;

// One thread for each pair of boxes.
__global__ void overlaps_kernel(const float* boxes, float* suppressed, size_type count, float threshold) {
  size_type pair = static_cast<size_type>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pair < count * count) {
    suppressed[pair] = overlap(boxes + 4 * (pair / count), boxes + 4 * (pair % count), threshold);
  }
}

}  // namespace

bool overlaps_cuda(const float* boxes, float* suppressed, size_type count, float threshold) {
  unsigned blocks = static_cast<unsigned>((count * count + kThreads - 1) / kThreads);
  overlaps_kernel<<<blocks ? blocks : 1u, kThreads>>>(boxes, suppressed, count, threshold);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

}  // namespace vision
