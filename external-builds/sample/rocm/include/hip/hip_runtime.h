/* Contract: both sides of HIP, as a file with kernels includes them. */
#ifndef HIP_RUNTIME_H
#define HIP_RUNTIME_H

#include <hip/hip_runtime_api.h>

#if defined(__HIP__)

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) \
  __attribute__((amdgpu_flat_work_group_size(1, __hip_first_of(__VA_ARGS__, 0))))
#define __hip_first_of(first, ...) first
#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define HIP_DYNAMIC_SHARED(type, var) extern __shared__ type var[];
#define HIP_SYMBOL(x) x

/* What clang calls for kernel<<<…>>>(…). */
extern "C" hipError_t __hipPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem = 0,
                                                 hipStream_t stream = nullptr);
extern "C" hipError_t __hipPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem,
                                                hipStream_t *stream);

#define hipLaunchKernelGGL(kernel, numBlocks, numThreads, memPerBlock, stream, ...) \
  kernel<<<(numBlocks), (numThreads), (memPerBlock), (stream)>>>(__VA_ARGS__)

#define __HIP_COORDINATE(name, call) \
  __declspec(property(get = __get_##name)) uint32_t name; \
  __device__ __forceinline__ uint32_t __get_##name() const { return call; }

struct __hip_builtin_threadIdx_t {
  __HIP_COORDINATE(x, __builtin_amdgcn_workitem_id_x())
  __HIP_COORDINATE(y, __builtin_amdgcn_workitem_id_y())
  __HIP_COORDINATE(z, __builtin_amdgcn_workitem_id_z())
};
struct __hip_builtin_blockIdx_t {
  __HIP_COORDINATE(x, __builtin_amdgcn_workgroup_id_x())
  __HIP_COORDINATE(y, __builtin_amdgcn_workgroup_id_y())
  __HIP_COORDINATE(z, __builtin_amdgcn_workgroup_id_z())
};
struct __hip_builtin_blockDim_t {
  __HIP_COORDINATE(x, __builtin_amdgcn_workgroup_size_x())
  __HIP_COORDINATE(y, __builtin_amdgcn_workgroup_size_y())
  __HIP_COORDINATE(z, __builtin_amdgcn_workgroup_size_z())
};
struct __hip_builtin_gridDim_t {
  __HIP_COORDINATE(x, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x())
  __HIP_COORDINATE(y, __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y())
  __HIP_COORDINATE(z, __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z())
};
#undef __HIP_COORDINATE

extern const __device__ __attribute__((weak)) __hip_builtin_threadIdx_t threadIdx;
extern const __device__ __attribute__((weak)) __hip_builtin_blockIdx_t blockIdx;
extern const __device__ __attribute__((weak)) __hip_builtin_blockDim_t blockDim;
extern const __device__ __attribute__((weak)) __hip_builtin_gridDim_t gridDim;

static __device__ __forceinline__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
static __device__ __forceinline__ void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }

#define __HIP_ATOMIC(type) \
  static __device__ __forceinline__ type atomicAdd(type *address, type value) { \
    return __hip_atomic_fetch_add(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
  } \
  static __device__ __forceinline__ type atomicMax(type *address, type value) { \
    return __hip_atomic_fetch_max(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
  } \
  static __device__ __forceinline__ type atomicMin(type *address, type value) { \
    return __hip_atomic_fetch_min(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
  }
__HIP_ATOMIC(int)
__HIP_ATOMIC(unsigned int)
__HIP_ATOMIC(unsigned long long)
__HIP_ATOMIC(float)
__HIP_ATOMIC(double)
#undef __HIP_ATOMIC

/* Only what the back end knows by itself: there is no device library here. */
static __device__ __forceinline__ float fabsf(float x) { return __builtin_fabsf(x); }
static __device__ __forceinline__ float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static __device__ __forceinline__ float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
static __device__ __forceinline__ float fminf(float x, float y) { return __builtin_fminf(x, y); }
static __device__ __forceinline__ float floorf(float x) { return __builtin_floorf(x); }
static __device__ __forceinline__ float ceilf(float x) { return __builtin_ceilf(x); }
static __device__ __forceinline__ float sqrtf(float x) { return __builtin_sqrtf(x); }
static __device__ __forceinline__ float expf(float x) { return __builtin_expf(x); }
static __device__ __forceinline__ float logf(float x) { return __builtin_logf(x); }
static __device__ __forceinline__ float __expf(float x) { return __builtin_expf(x); }

#endif
#endif
