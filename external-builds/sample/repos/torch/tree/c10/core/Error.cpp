// Contract: a file that is compiled into libc10 alone; incremental builds are tested on it.
#include <c10/core/Error.h>

#include <stdarg.h>
#include <stdio.h>

namespace c10 {
namespace {

__thread char message[512] = "no error";

}  // namespace

void set_error(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
}

const char* last_error() { return message; }

}  // namespace c10
