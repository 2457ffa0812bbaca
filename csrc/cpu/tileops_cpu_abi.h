// The binary interface between the runtime and generated CPU kernels: parameters, status,
// entry points.
//
// No standard header is included: generated code must compile in a fraction of a second.
#ifndef TILEOPS_CPU_ABI_H
#define TILEOPS_CPU_ABI_H

typedef __INT32_TYPE__ tileops_int32;
typedef __INT64_TYPE__ tileops_int64;

// One parameter of a launch. Pointers and tensors use `p`, every integer and bool type `i`, every
// float type `f` (already rounded to the declared type, so that the kernel's conversion is exact).
union TileopsValue {
  void* p;
  tileops_int64 i;
  double f;
};

// What a kernel reports. `code` is one of TileopsCode; the first failed check of a range sets all
// four fields, and the entry then returns that code. `statement` is the number of the statement in
// the program, -1 where unknown.
struct TileopsStatus {
  tileops_int32 code;
  tileops_int32 statement;
  tileops_int64 value;
  tileops_int64 bound;
};

enum TileopsCode {
  TILEOPS_OK = 0,
  TILEOPS_INDEX = 1,     // `value` lies outside [0, bound)
  TILEOPS_ASSERT = 2,    // a T.device_assert or T.assert failed
  TILEOPS_DIVIDE = 3,    // an integer division or remainder by zero
  TILEOPS_INTERNAL = 4,  // generated code met a state that it excludes
  TILEOPS_STUCK = 5,     // `value` of a block's `bound` threads wait for others that never come
};

// An entry runs the blocks [first, last) of the flattened grid. `params` are in the order of the
// launch's parameter list. `scratch` is private to the calling thread for the duration of the call,
// 64-byte aligned, as large as the launch asked for, and holds garbage. Returns 0 or the code that
// it left in `status`.
typedef tileops_int32 (*TileopsCpuEntry)(const union TileopsValue* params, tileops_int64 first,
                                         tileops_int64 last, char* scratch,
                                         struct TileopsStatus* status);

// Every kernel library exports this symbol once; the runtime refuses a library without it. A change
// of anything above changes the number.
#ifdef __cplusplus
#define TILEOPS_CPU_ABI_EXPORT \
  extern "C" __attribute__((visibility("default"), used)) const tileops_int32 tileops_cpu_abi_1 = 1;
#define TILEOPS_CPU_ENTRY extern "C" __attribute__((visibility("default")))
#endif

#endif  // TILEOPS_CPU_ABI_H
