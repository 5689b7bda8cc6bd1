/* Stand-in: what CMake writes in a ROCm build of PyTorch (its c10/cuda/impl/cuda_cmake_macros.h.in). */
#pragma once
#define C10_HIP_BUILD_SHARED_LIBS
