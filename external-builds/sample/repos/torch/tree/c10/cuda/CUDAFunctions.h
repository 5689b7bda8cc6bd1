// Questions about the devices of this machine.
#pragma once

#include <c10/macros/Export.h>

namespace c10 {
namespace cuda {

// How many devices the driver offers: 0 where there is none. Never an error,
// since importing torch on a machine without a GPU must work.
C10_API int device_count();

}  // namespace cuda
}  // namespace c10
