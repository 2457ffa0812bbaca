// The names of types that an author's source finds where a host's headers are included.
#ifndef TILEOPS_CUDA_SOURCES_H_
#define TILEOPS_CUDA_SOURCES_H_

typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef signed short int16_t;
typedef signed int int32_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef signed long long int64_t;
typedef unsigned long long uint64_t;

#endif  // TILEOPS_CUDA_SOURCES_H_
