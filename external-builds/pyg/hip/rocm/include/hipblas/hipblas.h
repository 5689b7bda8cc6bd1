/* Stand-in: the names that PyTorch's headers mention of hipBLAS, which Debian 12 does not have. */
#pragma once
typedef void* hipblasHandle_t;
typedef enum { HIPBLAS_STATUS_SUCCESS = 0 } hipblasStatus_t;
