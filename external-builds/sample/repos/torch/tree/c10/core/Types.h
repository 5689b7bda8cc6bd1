// The few plain types that host and device code share. No header of the C or
// C++ library is included here, so that device compilers can read this as well.
#pragma once

namespace c10 {

using size_type = decltype(sizeof(0));

enum class DeviceType : int { CPU = 0, CUDA = 1 };
constexpr int kDeviceTypes = 2;

}  // namespace c10
