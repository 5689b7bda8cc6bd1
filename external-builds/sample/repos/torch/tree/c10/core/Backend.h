// What one kind of device can do. Libraries register their table when they are
// loaded; the dispatcher in libtorch_cpu picks the table of a buffer's device.
#pragma once

#include <c10/core/Types.h>
#include <c10/macros/Export.h>

namespace c10 {

// All pointers are to memory of the backend's own device, except `host`.
// Every function returns false after set_error() when it could not do its work.
struct Backend {
  const char* name;
  bool (*allocate)(size_type bytes, void** memory);
  void (*release)(void* memory);
  bool (*upload)(void* memory, const void* host, size_type bytes);
  bool (*download)(void* host, const void* memory, size_type bytes);
  bool (*fill)(float* out, float value, size_type count);
  bool (*add)(const float* a, const float* b, float* out, size_type count);
  bool (*mul)(const float* a, const float* b, float* out, size_type count);
  bool (*relu)(const float* a, float* out, size_type count);
  bool (*sum)(const float* a, float* out, size_type count);
  // out[m, n] = a[m, k] times b[k, n], all row-major.
  bool (*matmul)(const float* a, const float* b, float* out, size_type m, size_type k, size_type n);
};

C10_API void register_backend(DeviceType device, const Backend* backend);

// The backend of `device`; nullptr, with the error set, when no library offers it.
C10_API const Backend* backend_for(DeviceType device);

}  // namespace c10
