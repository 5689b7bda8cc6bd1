#include <cuda_runtime.h>

__global__ void suppress(const float* overlaps, float threshold, int* kept, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) kept[i] = overlaps[i] <= threshold;
}

extern "C" int torchvision_suppress(const float* overlaps, float threshold, int* kept, int count) {
  suppress<<<(count + 63) / 64, 64>>>(overlaps, threshold, kept, count);
  return cudaGetLastError();
}
