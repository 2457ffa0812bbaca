// The compiler built-ins that the headers of generated kernels use, as functions of CUDA. Code for
// GPUs includes this file before them.
#ifndef TILEOPS_CUDA_BUILTINS_H_
#define TILEOPS_CUDA_BUILTINS_H_

#define __INT8_TYPE__ signed char
#define __INT16_TYPE__ short
#define __INT32_TYPE__ int
#define __INT64_TYPE__ long long
#define __UINT8_TYPE__ unsigned char
#define __UINT16_TYPE__ unsigned short
#define __UINT32_TYPE__ unsigned int
#define __UINT64_TYPE__ unsigned long long
#define __INT8_MAX__ 0x7f
#define __INT16_MAX__ 0x7fff
#define __INT32_MAX__ 0x7fffffff
#define __INT64_MAX__ 0x7fffffffffffffffll
#define __UINT8_MAX__ 0xff
#define __UINT16_MAX__ 0xffff
#define __UINT32_MAX__ 0xffffffffu
#define __UINT64_MAX__ 0xffffffffffffffffull

#define __builtin_memcpy memcpy
#define __builtin_popcountll __popcll
#define __builtin_clzll __clzll
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)
#define __builtin_nanf(text) __int_as_float(0x7fc00000)
#define __builtin_nan(text) __longlong_as_double(0x7ff8000000000000ll)
#define __builtin_fabsf fabsf
#define __builtin_fabs fabs
#define __builtin_floorf floorf
#define __builtin_floor floor
#define __builtin_truncf truncf
#define __builtin_trunc trunc
#define __builtin_fmodf fmodf
#define __builtin_fmod fmod

#endif  // TILEOPS_CUDA_BUILTINS_H_
