// A counted run of 32-bit floats on one device: the storage behind a tensor.
#pragma once

#include <c10/core/Types.h>
#include <c10/macros/Export.h>

namespace c10 {

struct Buffer {
  float* data;
  size_type count;
  DeviceType device;
};

// A buffer of `count` floats with undefined contents; nullptr on failure.
C10_API Buffer* new_buffer(size_type count, DeviceType device);
C10_API void delete_buffer(Buffer* buffer);

// Host memory in, host memory out. `count` floats, which must be the buffer's own count.
C10_API bool copy_from_host(Buffer* buffer, const float* host, size_type count);
C10_API bool copy_to_host(const Buffer* buffer, float* host, size_type count);

}  // namespace c10
