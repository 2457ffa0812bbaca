// Compares what csrc declares of torch's and of the driver's interfaces with their own headers. Only compiled, not run.
#include <cuda.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

#include <cstddef>
#include <type_traits>

#include "core/cuda_abi.h"
// A C function that is declared with two signatures, or a type with two meanings, is an error.
#include "torch/torch_abi.h"

static_assert(tileops::kTorchInterface == TORCH_TARGET_VERSION);

namespace {

// Two types that a call passes alike: numbers of one size and sign, pointers to such, classes.
template <class Own, class Theirs, class = void>
struct Alike : std::bool_constant<std::is_class_v<Own> && std::is_class_v<Theirs>> {};

template <class T>
using Number = typename std::conditional_t<std::is_enum_v<T>, std::underlying_type<T>, std::enable_if<true, T>>::type;

template <class T>
constexpr bool is_number = std::is_enum_v<T> || std::is_arithmetic_v<T>;

template <class Own, class Theirs>
struct Alike<Own, Theirs, std::enable_if_t<is_number<Own> && is_number<Theirs>>>
    : std::bool_constant<sizeof(Own) == sizeof(Theirs) && std::is_signed_v<Number<Own>> == std::is_signed_v<Number<Theirs>> &&
                         std::is_floating_point_v<Own> == std::is_floating_point_v<Theirs>> {};

template <>
struct Alike<void, void> : std::true_type {};

template <class Own, class Theirs>
struct Alike<Own*, Theirs*>
    : std::bool_constant<std::is_const_v<Own> == std::is_const_v<Theirs> &&
                         Alike<std::remove_const_t<Own>, std::remove_const_t<Theirs>>::value> {};

template <class R, class... P, class S, class... Q>
struct Alike<R(P...), S(Q...), std::enable_if_t<sizeof...(P) == sizeof...(Q)>>
    : std::bool_constant<Alike<R, S>::value && (Alike<P, Q>::value && ...)> {};

#define FUNCTION(name) \
  static_assert(Alike<tileops::cuda_abi::name, std::remove_pointer_t<decltype(&::name)>>::value, #name)
FUNCTION(cuInit);
FUNCTION(cuDriverGetVersion);
FUNCTION(cuDeviceGetCount);
FUNCTION(cuDeviceGet);
FUNCTION(cuDeviceGetName);
FUNCTION(cuDeviceGetAttribute);
FUNCTION(cuDevicePrimaryCtxRetain);
FUNCTION(cuCtxGetCurrent);
FUNCTION(cuCtxPushCurrent_v2);
FUNCTION(cuCtxPopCurrent_v2);
FUNCTION(cuCtxSynchronize);
FUNCTION(cuModuleLoadDataEx);
FUNCTION(cuModuleGetFunction);
FUNCTION(cuModuleUnload);
FUNCTION(cuFuncSetAttribute);
FUNCTION(cuFuncGetAttribute);
FUNCTION(cuLaunchKernelEx);
FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessor);
FUNCTION(cuStreamIsCapturing);
FUNCTION(cuMemsetD8Async);
FUNCTION(cuMemcpyDtoHAsync_v2);
FUNCTION(cuStreamSynchronize);
FUNCTION(cuGetErrorName);
FUNCTION(cuGetErrorString);
FUNCTION(cuTensorMapEncodeTiled);

#define VALUE(name) static_assert(int(tileops::name) == int(::name), #name)
VALUE(CUDA_SUCCESS);
VALUE(CUDA_ERROR_ECC_UNCORRECTABLE);
VALUE(CUDA_ERROR_ILLEGAL_ADDRESS);
VALUE(CUDA_ERROR_LAUNCH_TIMEOUT);
VALUE(CUDA_ERROR_ASSERT);
VALUE(CUDA_ERROR_HARDWARE_STACK_ERROR);
VALUE(CUDA_ERROR_ILLEGAL_INSTRUCTION);
VALUE(CUDA_ERROR_MISALIGNED_ADDRESS);
VALUE(CUDA_ERROR_INVALID_ADDRESS_SPACE);
VALUE(CUDA_ERROR_INVALID_PC);
VALUE(CUDA_ERROR_LAUNCH_FAILED);
VALUE(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
VALUE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
VALUE(CUDA_ERROR_UNKNOWN);
VALUE(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
VALUE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
VALUE(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
VALUE(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
VALUE(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
VALUE(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
VALUE(CU_JIT_ERROR_LOG_BUFFER);
VALUE(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
VALUE(CU_STREAM_CAPTURE_STATUS_NONE);
VALUE(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
VALUE(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
VALUE(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
VALUE(CU_TENSOR_MAP_INTERLEAVE_NONE);
VALUE(CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
VALUE(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
VALUE(CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);

#define LAYOUT(name) \
  static_assert(sizeof(tileops::name) == sizeof(::name) && alignof(tileops::name) == alignof(::name), #name)
LAYOUT(CUdevice);
LAYOUT(CUdeviceptr);
LAYOUT(CUtensorMap);
LAYOUT(CUlaunchAttributeValue);
LAYOUT(CUlaunchAttribute);
LAYOUT(CUlaunchConfig);

#define MEMBER(type, name) static_assert(offsetof(tileops::type, name) == offsetof(::type, name), #type "." #name)
MEMBER(CUlaunchAttribute, id);
MEMBER(CUlaunchAttribute, value);
MEMBER(CUlaunchAttributeValue, cooperative);
MEMBER(CUlaunchAttributeValue, clusterDim.x);
MEMBER(CUlaunchAttributeValue, clusterDim.y);
MEMBER(CUlaunchAttributeValue, clusterDim.z);
MEMBER(CUlaunchAttributeValue, programmaticStreamSerializationAllowed);
MEMBER(CUlaunchConfig, gridDimX);
MEMBER(CUlaunchConfig, gridDimY);
MEMBER(CUlaunchConfig, gridDimZ);
MEMBER(CUlaunchConfig, blockDimX);
MEMBER(CUlaunchConfig, blockDimY);
MEMBER(CUlaunchConfig, blockDimZ);
MEMBER(CUlaunchConfig, sharedMemBytes);
MEMBER(CUlaunchConfig, hStream);
MEMBER(CUlaunchConfig, attrs);
MEMBER(CUlaunchConfig, numAttrs);

}  // namespace
