// Contract: a header of a submodule, with CUDA names in it.
// Filling and scaling arrays on the device.
#pragma once

#include <cuda_runtime.h>

namespace cudakit {

using size_type = decltype(sizeof(0));

// Sets `count` floats at `out` (device memory) to `value`, on the default stream.
cudaError_t fill(float* out, float value, size_type count);

// Multiplies `count` floats at `data` (device memory) by `factor`, on the default stream.
cudaError_t scale(float* data, float factor, size_type count);

}  // namespace cudakit
