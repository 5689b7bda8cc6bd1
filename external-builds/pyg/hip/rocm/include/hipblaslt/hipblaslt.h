/* Stand-in: the name that PyTorch's headers mention of hipBLASLt, which Debian 12 does not have. */
#pragma once
typedef void* hipblasLtHandle_t;
