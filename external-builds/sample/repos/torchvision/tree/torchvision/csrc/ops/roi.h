// The mean of one cell of a region: the same code on the CPU and on devices.
#pragma once

#include <c10/core/Types.h>

#if defined(__CUDACC__) || defined(__HIP__)
#define VISION_HOST_DEVICE __host__ __device__
#else
#define VISION_HOST_DEVICE
#endif

namespace vision {
namespace ops {

using c10::size_type;

// A coordinate as a pixel number from 0 to `limit`.
VISION_HOST_DEVICE inline size_type pixel(float value, size_type limit) {
  if (!(value > 0.0f)) {
    return 0;
  }
  size_type number = static_cast<size_type>(value);
  return number < limit ? number : limit;
}

// `box` is x1, y1, x2, y2 in pixels; the region is divided into bins x bins equal cells.
// A cell without any pixel has the mean 0.
VISION_HOST_DEVICE inline float roi_cell(const float* image, const float* box, size_type height,
                                         size_type width, size_type bins, size_type row,
                                         size_type column) {
  float step_x = (box[2] - box[0]) / static_cast<float>(bins);
  float step_y = (box[3] - box[1]) / static_cast<float>(bins);
  size_type x1 = pixel(box[0] + step_x * static_cast<float>(column), width);
  size_type x2 = pixel(box[0] + step_x * static_cast<float>(column + 1), width);
  size_type y1 = pixel(box[1] + step_y * static_cast<float>(row), height);
  size_type y2 = pixel(box[1] + step_y * static_cast<float>(row + 1), height);
  float total = 0.0f;
  for (size_type y = y1; y < y2; ++y) {
    for (size_type x = x1; x < x2; ++x) {
      total += image[y * width + x];
    }
  }
  size_type pixels = x2 > x1 && y2 > y1 ? (x2 - x1) * (y2 - y1) : 0;
  return pixels ? total / static_cast<float>(pixels) : 0.0f;
}

}  // namespace ops
}  // namespace vision
