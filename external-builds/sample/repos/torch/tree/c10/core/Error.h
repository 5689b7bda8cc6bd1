// Contract: errors cross the libraries without exceptions, which would tie extensions to one C++ library.
#pragma once

#include <c10/core/Buffer.h>

namespace c10 {

// Remembers a printf-style message for this thread.
C10_API void set_error(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The message of the last failure in this thread; never nullptr.
C10_API const char* last_error();

}  // namespace c10
