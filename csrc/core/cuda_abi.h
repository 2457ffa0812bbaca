// The CUDA driver's binary interface, as far as the runtime uses it: types, numbers and the
// signatures of functions that are looked up by name. No toolkit is needed to build, and a test
// compares all of it with cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tileops {

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CudaContextOpaque*;
using CUmodule = struct CudaModuleOpaque*;
using CUfunction = struct CudaFunctionOpaque*;
using CUstream = struct CudaStreamOpaque*;

// Those that the runtime tells apart; a driver returns others too.
enum CUresult : unsigned {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
  CUDA_ERROR_INVALID_PC = 718,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_UNKNOWN = 999,
};

enum CUdevice_attribute : unsigned {
  CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

enum CUfunction_attribute : unsigned { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };

enum CUjit_option : unsigned {
  CU_JIT_ERROR_LOG_BUFFER = 5,
  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
};

enum CUstreamCaptureStatus : unsigned { CU_STREAM_CAPTURE_STATUS_NONE = 0 };

enum CUlaunchAttributeID : unsigned {
  CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
};

union alignas(8) CUlaunchAttributeValue {
  char pad[64];
  int cooperative;
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
};

struct CUlaunchAttribute {
  CUlaunchAttributeID id;
  CUlaunchAttributeValue value;
};

struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};

using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;

// The members are the driver's own.
struct alignas(128) CUtensorMap {
  uint64_t opaque[16];
};
enum CUtensorMapDataType : unsigned {};
enum CUtensorMapSwizzle : unsigned {};
enum CUtensorMapInterleave : unsigned { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapL2promotion : unsigned { CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2 };
enum CUtensorMapFloatOOBfill : unsigned {
  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0,
  CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA = 1,
};

// Types of functions. Where the driver has several versions of one, the exported symbol is named in
// driver.cpp.
namespace cuda_abi {
using cuInit = CUresult(unsigned);
using cuDriverGetVersion = CUresult(int*);
using cuDeviceGetCount = CUresult(int*);
using cuDeviceGet = CUresult(CUdevice*, int);
using cuDeviceGetName = CUresult(char*, int, CUdevice);
using cuDeviceGetAttribute = CUresult(int*, CUdevice_attribute, CUdevice);
using cuDevicePrimaryCtxRetain = CUresult(CUcontext*, CUdevice);
using cuCtxGetCurrent = CUresult(CUcontext*);
using cuCtxPushCurrent_v2 = CUresult(CUcontext);
using cuCtxPopCurrent_v2 = CUresult(CUcontext*);
using cuCtxSynchronize = CUresult();
using cuModuleLoadDataEx = CUresult(CUmodule*, const void*, unsigned, CUjit_option*, void**);
using cuModuleGetFunction = CUresult(CUfunction*, CUmodule, const char*);
using cuModuleUnload = CUresult(CUmodule);
using cuFuncSetAttribute = CUresult(CUfunction, CUfunction_attribute, int);
using cuFuncGetAttribute = CUresult(int*, CUfunction_attribute, CUfunction);
using cuOccupancyMaxActiveBlocksPerMultiprocessor = CUresult(int*, CUfunction, int, std::size_t);
using cuLaunchKernelEx = CUresult(const CUlaunchConfig*, CUfunction, void**, void**);
using cuStreamIsCapturing = CUresult(CUstream, CUstreamCaptureStatus*);
using cuMemsetD8Async = CUresult(CUdeviceptr, unsigned char, std::size_t, CUstream);
using cuMemcpyDtoHAsync_v2 = CUresult(void*, CUdeviceptr, std::size_t, CUstream);
using cuStreamSynchronize = CUresult(CUstream);
using cuGetErrorName = CUresult(CUresult, const char**);
using cuGetErrorString = CUresult(CUresult, const char**);
using cuTensorMapEncodeTiled = CUresult(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                        const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                        const cuuint32_t*, CUtensorMapInterleave,
                                        CUtensorMapSwizzle, CUtensorMapL2promotion,
                                        CUtensorMapFloatOOBfill);
}  // namespace cuda_abi

}  // namespace tileops
