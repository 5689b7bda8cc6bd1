/* Stand-in: the names that PyTorch's headers mention of hipSOLVER, which Debian 12 does not have. */
#pragma once
typedef void* hipsolverDnHandle_t;
typedef enum { HIPSOLVER_STATUS_SUCCESS = 0 } hipsolverStatus_t;
