// Contract: libc10.so, whose headers extensions compile against. A buffer is the storage behind a tensor.
#pragma once

#define C10_API __attribute__((visibility("default")))

namespace c10 {

using size_type = decltype(sizeof(0));  // without a header of the C library: device compilers read this too
enum class DeviceType : int { CPU = 0, CUDA = 1 };

struct Buffer {
  float* data;
  size_type count;
  DeviceType device;
};

// What a kind of device can do. libtorch_cpu and libtorch_hip register theirs when they are loaded, as
// upstream's dispatcher has it. Every function returns false after set_error().
struct Backend {
  bool (*allocate)(size_type bytes, void** memory);
  void (*release)(void* memory);
  bool (*upload)(void* memory, const void* host, size_type bytes);
  bool (*download)(void* host, const void* memory, size_type bytes);
  bool (*fill)(float* out, float value, size_type count);
  bool (*add)(const float* a, const float* b, float* out, size_type count);
  bool (*mul)(const float* a, const float* b, float* out, size_type count);
};

C10_API void register_backend(DeviceType device, const Backend* backend);

// The backend of `device`; nullptr, with the error set, when no library offers it.
C10_API const Backend* backend_for(DeviceType device);

// A buffer of `count` floats with undefined contents; nullptr on failure.
C10_API Buffer* new_buffer(size_type count, DeviceType device);
C10_API void delete_buffer(Buffer* buffer);

}  // namespace c10
