// The launchers that CUDABackend.cu gathers into the device's backend.
#pragma once

#include <c10/core/Types.h>

namespace at {
namespace native {

using c10::size_type;

constexpr unsigned kThreads = 256;

// Blocks of kThreads that cover `count` items; at least one, since an empty grid is an error.
inline unsigned blocks_for(size_type count) {
  return count ? static_cast<unsigned>((count + kThreads - 1) / kThreads) : 1u;
}

bool add_cuda(const float* a, const float* b, float* out, size_type count);
bool mul_cuda(const float* a, const float* b, float* out, size_type count);
bool relu_cuda(const float* a, float* out, size_type count);
bool sum_cuda(const float* a, float* out, size_type count);
bool matmul_cuda(const float* a, const float* b, float* out, size_type m, size_type k, size_type n);

}  // namespace native
}  // namespace at
