// The launchers of the device kernels. All pointers are to device memory.
#pragma once

#include <c10/core/Types.h>

namespace vision {
namespace ops {

using c10::size_type;

// suppressed[i * count + j] becomes 1 where box j overlaps box i by more than `threshold`, else 0.
bool overlaps_cuda(const float* boxes, float* suppressed, size_type count, float threshold);

// The mean of each of bins x bins cells of each region of an image of height x width.
bool roi_pool_cuda(const float* image, const float* boxes, float* out, size_type regions,
                   size_type height, size_type width, size_type bins);

}  // namespace ops
}  // namespace vision
