"""Contract: the tables that hipify and the check for what it left go by.

Only names that stand alone are replaced, so that no entry can touch a longer name, and no
replacement contains a key of the table, so that a second run changes nothing.
"""

INCLUDES = {
    "cuda_runtime.h": "hip/hip_runtime.h",
    "cuda_runtime_api.h": "hip/hip_runtime_api.h",
}

RUNTIME = {
    "cudaDeviceSynchronize": "hipDeviceSynchronize",
    "cudaError_t": "hipError_t",
    "cudaFree": "hipFree",
    "cudaGetDeviceCount": "hipGetDeviceCount",
    "cudaGetErrorString": "hipGetErrorString",
    "cudaGetLastError": "hipGetLastError",
    "cudaMalloc": "hipMalloc",
    "cudaMemcpy": "hipMemcpy",
    "cudaMemcpyDeviceToHost": "hipMemcpyDeviceToHost",
    "cudaMemcpyHostToDevice": "hipMemcpyHostToDevice",
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
