# Read by CMake at torch's `project()` (CMAKE_PROJECT_TOP_LEVEL_INCLUDES): what is compiled names its sources, in its
# messages, from the root of the tree and not by their place on the machine that built it.
#
# The option is the folder's and not in CMAKE_CXX_FLAGS, which torch writes into the library, path and quotes and
# all (caffe2/core/macros.h.in, shown by torch.__config__.show()). Debuggers still find the sources of a build with
# debugging information.
if(NOT CMAKE_HOST_WIN32)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX,HIP>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}=.>")
endif()
