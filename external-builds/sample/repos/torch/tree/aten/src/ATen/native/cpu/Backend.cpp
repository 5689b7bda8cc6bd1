// The CPU's backend: plain loops, in the order of the reference results.
#include <c10/core/Backend.h>

#include <stdlib.h>
#include <string.h>

#include <c10/core/Error.h>

namespace at {
namespace native {
namespace {

using c10::size_type;

bool allocate(size_type bytes, void** memory) {
  *memory = malloc(bytes);
  if (*memory == nullptr) {
    c10::set_error("out of memory: %zu bytes", bytes);
    return false;
  }
  return true;
}

void release(void* memory) { free(memory); }

bool copy(void* to, const void* from, size_type bytes) {
  memcpy(to, from, bytes);
  return true;
}

bool fill(float* out, float value, size_type count) {
  for (size_type i = 0; i < count; ++i) {
    out[i] = value;
  }
  return true;
}

bool add(const float* a, const float* b, float* out, size_type count) {
  for (size_type i = 0; i < count; ++i) {
    out[i] = a[i] + b[i];
  }
  return true;
}

bool mul(const float* a, const float* b, float* out, size_type count) {
  for (size_type i = 0; i < count; ++i) {
    out[i] = a[i] * b[i];
  }
  return true;
}

bool relu(const float* a, float* out, size_type count) {
  for (size_type i = 0; i < count; ++i) {
    // Written so that NaN stays NaN, as elsewhere in torch.
    out[i] = a[i] < 0.0f ? 0.0f : a[i];
  }
  return true;
}

bool sum(const float* a, float* out, size_type count) {
  double total = 0.0;
  for (size_type i = 0; i < count; ++i) {
    total += a[i];
  }
  *out = static_cast<float>(total);
  return true;
}

bool matmul(const float* a, const float* b, float* out, size_type m, size_type k, size_type n) {
  for (size_type row = 0; row < m; ++row) {
    for (size_type column = 0; column < n; ++column) {
      float total = 0.0f;
      for (size_type i = 0; i < k; ++i) {
        total += a[row * k + i] * b[i * n + column];
      }
      out[row * n + column] = total;
    }
  }
  return true;
}

const c10::Backend backend = {"cpu", allocate, release, copy, copy, fill,
                              add,   mul,      relu,    sum,  matmul};

__attribute__((constructor)) void register_cpu() {
  c10::register_backend(c10::DeviceType::CPU, &backend);
}

}  // namespace
}  // namespace native
}  // namespace at
