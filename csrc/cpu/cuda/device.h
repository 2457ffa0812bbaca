// What generated kernels in CUDA C++ include: the arithmetic of the kernels for CPUs, with CUDA's
// functions, atomic operations and threads.
#ifndef TILEOPS_CUDA_DEVICE_H_
#define TILEOPS_CUDA_DEVICE_H_

#include "cuda/builtins.h"
// builtins.h comes first.
#include "arith.h"
#include "cuda/atomic.h"
#include "cuda/functions.h"
#include "cuda/print.h"
#include "cuda/threads.h"
#include "philox.h"

#endif  // TILEOPS_CUDA_DEVICE_H_
