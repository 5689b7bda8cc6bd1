#include <cuda_runtime.h>

#include <c10/cuda/CUDAException.h>

#include "../roi.h"
#include "kernels.h"

namespace vision {
namespace ops {
namespace {

constexpr unsigned kThreads = 128;

// One thread for each cell of each region.
__global__ void roi_pool_kernel(const float* image, const float* boxes, float* out,
                                size_type regions, size_type height, size_type width,
                                size_type bins) {
  size_type item = static_cast<size_type>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (item < regions * bins * bins) {
    size_type cell = item % (bins * bins);
    const float* box = boxes + 4 * (item / (bins * bins));
    out[item] = roi_cell(image, box, height, width, bins, cell / bins, cell % bins);
  }
}

}  // namespace

bool roi_pool_cuda(const float* image, const float* boxes, float* out, size_type regions,
                   size_type height, size_type width, size_type bins) {
  size_type items = regions * bins * bins;
  unsigned blocks = static_cast<unsigned>((items + kThreads - 1) / kThreads);
  roi_pool_kernel<<<blocks ? blocks : 1u, kThreads>>>(image, boxes, out, regions, height, width,
                                                      bins);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

}  // namespace ops
}  // namespace vision
