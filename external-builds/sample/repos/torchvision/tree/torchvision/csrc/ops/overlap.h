// Contract: a header without CUDA names, which hipify leaves alone: the same code on the CPU and on devices.
#pragma once

#if defined(__CUDACC__) || defined(__HIP__)
#define VISION_HOST_DEVICE __host__ __device__
#else
#define VISION_HOST_DEVICE
#endif

namespace vision {

VISION_HOST_DEVICE inline float larger(float a, float b) { return a > b ? a : b; }
VISION_HOST_DEVICE inline float smaller(float a, float b) { return a < b ? a : b; }
VISION_HOST_DEVICE inline float area(const float* box) { return (box[2] - box[0]) * (box[3] - box[1]); }

// 1 where two boxes (x1, y1, x2, y2) share more than `threshold` of what they cover together, else 0.
VISION_HOST_DEVICE inline float overlap(const float* a, const float* b, float threshold) {
  float width = larger(smaller(a[2], b[2]) - larger(a[0], b[0]), 0.0f);
  float height = larger(smaller(a[3], b[3]) - larger(a[1], b[1]), 0.0f);
  float shared = width * height;
  return shared > threshold * (area(a) + area(b) - shared) ? 1.0f : 0.0f;
}

}  // namespace vision
