// Contract: libtorch_cpu.so, whose operators torch's extensions call. Each returns a new buffer, or nullptr with
// the error set.
#pragma once

#include <c10/core/Buffer.h>

namespace at {

using c10::Buffer;
using c10::size_type;

C10_API Buffer* full(size_type count, float value, c10::DeviceType device);
C10_API Buffer* add(const Buffer* a, const Buffer* b);
C10_API Buffer* mul(const Buffer* a, const Buffer* b);
C10_API Buffer* to_device(const Buffer* a, c10::DeviceType device);

}  // namespace at
