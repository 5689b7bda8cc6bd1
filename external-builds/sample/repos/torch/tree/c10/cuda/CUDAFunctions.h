// Contract: torch can be imported, and asked for its devices, on a machine without a GPU.
#pragma once

#include <c10/core/Buffer.h>

namespace c10 {
namespace cuda {

// How many devices the driver offers: 0 where there is none, and never an error.
C10_API int device_count();

}  // namespace cuda
}  // namespace c10
