"""What each CUDA name is called in HIP.

Only names that stand alone are replaced, so that no entry can touch a longer name, and no
replacement contains a key of the table, so that a second run changes nothing.
"""

INCLUDES = {
    "cuda.h": "hip/hip_runtime.h",
    "cuda_fp16.h": "hip/hip_fp16.h",
    "cuda_runtime.h": "hip/hip_runtime.h",
    "cuda_runtime_api.h": "hip/hip_runtime_api.h",
    "device_launch_parameters.h": "hip/hip_runtime.h",
}

RUNTIME = {
    "cudaDeviceProp": "hipDeviceProp_t",
    "cudaDeviceReset": "hipDeviceReset",
    "cudaDeviceSynchronize": "hipDeviceSynchronize",
    "cudaDeviceptr": "hipDeviceptr_t",
    "cudaError": "hipError_t",
    "cudaErrorInvalidValue": "hipErrorInvalidValue",
    "cudaErrorMemoryAllocation": "hipErrorOutOfMemory",
    "cudaErrorNoDevice": "hipErrorNoDevice",
    "cudaError_t": "hipError_t",
    "cudaEventCreate": "hipEventCreate",
    "cudaEventDestroy": "hipEventDestroy",
    "cudaEventElapsedTime": "hipEventElapsedTime",
    "cudaEventRecord": "hipEventRecord",
    "cudaEventSynchronize": "hipEventSynchronize",
    "cudaEvent_t": "hipEvent_t",
    "cudaFree": "hipFree",
    "cudaFreeHost": "hipHostFree",
    "cudaGetDevice": "hipGetDevice",
    "cudaGetDeviceCount": "hipGetDeviceCount",
    "cudaGetDeviceProperties": "hipGetDeviceProperties",
    "cudaGetErrorName": "hipGetErrorName",
    "cudaGetErrorString": "hipGetErrorString",
    "cudaGetLastError": "hipGetLastError",
    "cudaHostAlloc": "hipHostMalloc",
    "cudaMalloc": "hipMalloc",
    "cudaMallocHost": "hipHostMalloc",
    "cudaMemcpy": "hipMemcpy",
    "cudaMemcpyAsync": "hipMemcpyAsync",
    "cudaMemcpyDeviceToDevice": "hipMemcpyDeviceToDevice",
    "cudaMemcpyDeviceToHost": "hipMemcpyDeviceToHost",
    "cudaMemcpyHostToDevice": "hipMemcpyHostToDevice",
    "cudaMemset": "hipMemset",
    "cudaMemsetAsync": "hipMemsetAsync",
    "cudaPeekAtLastError": "hipPeekAtLastError",
    "cudaSetDevice": "hipSetDevice",
    "cudaStreamCreate": "hipStreamCreate",
    "cudaStreamDestroy": "hipStreamDestroy",
    "cudaStreamSynchronize": "hipStreamSynchronize",
    "cudaStream_t": "hipStream_t",
    "cudaSuccess": "hipSuccess",
}

# torch's own names. `cuda::` namespaces of the C++ API become `hip::`.
TORCH = {
    "C10_CUDA_CHECK": "C10_HIP_CHECK",
    "C10_CUDA_KERNEL_LAUNCH_CHECK": "C10_HIP_KERNEL_LAUNCH_CHECK",
    "c10::cuda": "c10::hip",
    "at::cuda": "at::hip",
    "namespace cuda": "namespace hip",
}
