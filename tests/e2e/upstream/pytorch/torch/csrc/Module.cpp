// Stand-in: a file of upstream's own tree, not of a submodule, that hipify changes.
#include <cuda_runtime.h>

int torch_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}
