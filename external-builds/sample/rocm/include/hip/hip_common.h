/* Contract: the macros by which sources tell AMD's platform. */
#ifndef HIP_COMMON_H
#define HIP_COMMON_H

/* As in the original, code asks for the platform by defining it; there is only this one here. */
#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__ 1
#endif

#endif
