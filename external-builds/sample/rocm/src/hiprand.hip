// Contract: what rocm-sdk-libraries is made of, for exactly the targets asked for: uniform random numbers by
// Philox 4x32-10 (Salmon et al., SC 2011), counter based, one number a thread.
#include <hip/hip_runtime.h>
#include <hiprand/hiprand.h>
#include <stdlib.h>

struct hiprandGenerator {
  unsigned long long seed, offset;
};

static __device__ uint32_t philox(unsigned long long counter, unsigned long long seed) {
  uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
  uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    unsigned long long a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
    uint32_t n[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
    for (int i = 0; i < 4; ++i) c[i] = n[i];
    k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
  }
  return c[0];
}

__global__ void uniform_kernel(float *out, size_t n, unsigned long long seed, unsigned long long offset) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  // (0, 1], as hipRAND has it.
  if (i < n) out[i] = ((philox(offset + i, seed) >> 8) + 1) * (1.0f / 16777216.0f);
}

extern "C" {

hiprandStatus_t hiprandGetVersion(int *version) {
  if (!version) return HIPRAND_STATUS_TYPE_ERROR;
  *version = 201200;
  return HIPRAND_STATUS_SUCCESS;
}

hiprandStatus_t hiprandCreateGenerator(hiprandGenerator_t *generator, hiprandRngType_t type) {
  if (type != HIPRAND_RNG_PSEUDO_DEFAULT && type != HIPRAND_RNG_PSEUDO_PHILOX4_32_10)
    return HIPRAND_STATUS_TYPE_ERROR;
  int count = 0;
  if (hipGetDeviceCount(&count) != hipSuccess || count == 0) return HIPRAND_STATUS_INITIALIZATION_FAILED;
  *generator = (hiprandGenerator_t)calloc(1, sizeof **generator);
  return *generator ? HIPRAND_STATUS_SUCCESS : HIPRAND_STATUS_ALLOCATION_FAILED;
}

hiprandStatus_t hiprandDestroyGenerator(hiprandGenerator_t generator) {
  free(generator);
  return HIPRAND_STATUS_SUCCESS;
}

hiprandStatus_t hiprandSetPseudoRandomGeneratorSeed(hiprandGenerator_t generator, unsigned long long seed) {
  if (!generator) return HIPRAND_STATUS_NOT_INITIALIZED;
  generator->seed = seed, generator->offset = 0;
  return HIPRAND_STATUS_SUCCESS;
}

hiprandStatus_t hiprandGenerateUniform(hiprandGenerator_t generator, float *out, size_t n) {
  if (!generator) return HIPRAND_STATUS_NOT_INITIALIZED;
  const unsigned block = 256;
  hipLaunchKernelGGL(uniform_kernel, dim3((n + block - 1) / block), dim3(block), 0, 0, out, n,
                     generator->seed, generator->offset);
  generator->offset += n;
  return hipGetLastError() == hipSuccess ? HIPRAND_STATUS_SUCCESS : HIPRAND_STATUS_LAUNCH_FAILURE;
}
}
