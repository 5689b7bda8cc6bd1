// Operators on buffers. Each picks the backend of its operands' device and
// returns a new buffer, or nullptr after c10::set_error().
#pragma once

#include <c10/core/Buffer.h>
#include <c10/macros/Export.h>

namespace at {

using c10::Buffer;
using c10::size_type;

C10_API Buffer* full(size_type count, float value, c10::DeviceType device);
C10_API Buffer* add(const Buffer* a, const Buffer* b);
C10_API Buffer* mul(const Buffer* a, const Buffer* b);
C10_API Buffer* relu(const Buffer* a);
C10_API Buffer* sum(const Buffer* a);
C10_API Buffer* matmul(const Buffer* a, const Buffer* b, size_type m, size_type k, size_type n);
C10_API Buffer* to_device(const Buffer* a, c10::DeviceType device);

}  // namespace at
