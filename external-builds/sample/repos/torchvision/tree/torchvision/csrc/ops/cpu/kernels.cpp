#include "kernels.h"

#include "../roi.h"

namespace vision {
namespace ops {
namespace {

float larger(float a, float b) { return a > b ? a : b; }
float smaller(float a, float b) { return a < b ? a : b; }

float area(const float* box) { return (box[2] - box[0]) * (box[3] - box[1]); }

// Whether two boxes share more than `threshold` of what they cover together.
bool overlap(const float* a, const float* b, float threshold) {
  float width = larger(smaller(a[2], b[2]) - larger(a[0], b[0]), 0.0f);
  float height = larger(smaller(a[3], b[3]) - larger(a[1], b[1]), 0.0f);
  float shared = width * height;
  return shared > threshold * (area(a) + area(b) - shared);
}

}  // namespace

void overlaps_cpu(const float* boxes, float* suppressed, size_type count, float threshold) {
  for (size_type i = 0; i < count; ++i) {
    for (size_type j = 0; j < count; ++j) {
      bool found = overlap(boxes + 4 * i, boxes + 4 * j, threshold);
      suppressed[i * count + j] = found ? 1.0f : 0.0f;
    }
  }
}

void roi_pool_cpu(const float* image, const float* boxes, float* out, size_type regions,
                  size_type height, size_type width, size_type bins) {
  for (size_type region = 0; region < regions; ++region) {
    for (size_type cell = 0; cell < bins * bins; ++cell) {
      out[region * bins * bins + cell] =
          roi_cell(image, boxes + 4 * region, height, width, bins, cell / bins, cell % bins);
    }
  }
}

}  // namespace ops
}  // namespace vision
