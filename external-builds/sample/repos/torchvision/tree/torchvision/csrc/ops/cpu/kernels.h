// The same work as ops/cuda/kernels.h, on the CPU.
#pragma once

#include <c10/core/Types.h>

namespace vision {
namespace ops {

using c10::size_type;

void overlaps_cpu(const float* boxes, float* suppressed, size_type count, float threshold);
void roi_pool_cpu(const float* image, const float* boxes, float* out, size_type regions,
                  size_type height, size_type width, size_type bins);

}  // namespace ops
}  // namespace vision
