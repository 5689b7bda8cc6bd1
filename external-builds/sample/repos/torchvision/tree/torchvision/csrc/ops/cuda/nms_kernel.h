// Contract: a header in a folder `cuda`, which hipify copies while the project is built.
#pragma once

#include <c10/core/Buffer.h>

namespace vision {

// suppressed[i * count + j] becomes 1 where box j overlaps box i. All pointers are to device memory.
bool overlaps_cuda(const float* boxes, float* suppressed, c10::size_type count, float threshold);

}  // namespace vision
