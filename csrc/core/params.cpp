// The packing of parameters, type by type.
#include "core/params.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"

namespace tileops {
namespace {

// Rounds to a binary float format with `digits` significant bits and normal exponents down to
// `lowest` (value 1.x * 2^e).
double round_to_format(double value, int digits, int lowest, double largest) {
  if (!std::isfinite(value) || value == 0) return value;
  int exponent = std::ilogb(value);
  if (exponent < lowest) exponent = lowest;
  const double unit = std::ldexp(1.0, exponent - digits + 1);
  // Dividing by a power of two is exact, nearbyint rounds ties to even in the default rounding
  // mode.
  const double rounded = std::nearbyint(value / unit) * unit;
  return std::fabs(rounded) > largest
             ? std::copysign(std::numeric_limits<double>::infinity(), value)
             : rounded;
}

struct IntRange {
  int64_t low, high;
};

// u64 parameters come from int64 values: the upper half of their range cannot be passed.
IntRange range_of(ScalarType type) {
  switch (type) {
    case ScalarType::kI1:
      return {0, 1};
    case ScalarType::kI8:
      return {INT8_MIN, INT8_MAX};
    case ScalarType::kI16:
      return {INT16_MIN, INT16_MAX};
    case ScalarType::kI32:
      return {INT32_MIN, INT32_MAX};
    case ScalarType::kU8:
      return {0, UINT8_MAX};
    case ScalarType::kU16:
      return {0, UINT16_MAX};
    case ScalarType::kU32:
      return {0, UINT32_MAX};
    case ScalarType::kU64:
      return {0, INT64_MAX};
    default:
      return {INT64_MIN, INT64_MAX};
  }
}

// What a parameter is called in errors.
std::string argument_text(const LaunchSpec& launch, std::size_t number) {
  const bool is_named = number < launch.names.size();
  return (is_named ? launch.names[number] : "parameter " + std::to_string(number)) + " of '" +
         launch.title + "'";
}

[[noreturn]] __attribute__((cold, noinline)) void does_not_fit(int64_t value, IntRange range,
                                                               const char* op,
                                                               const LaunchSpec& launch,
                                                               std::size_t number) {
  if (!launch.names.empty()) {
    raise(ErrorKind::kArgument, op, ": ", argument_text(launch, number), " is ", value,
          "; expected ", range.low, "..", range.high, ", which the kernel's parameter takes");
  }
  raise(ErrorKind::kArgument, op, ": the value ", value,
        " does not fit the kernel's parameter of range ", range.low, "..", range.high,
        "; a size or scalar that can be larger needs a wider dtype, as T.dynamic(name, T.int64)");
}

int64_t checked_int(int64_t value, ScalarType type, const char* op, const LaunchSpec& launch,
                    std::size_t number) {
  const IntRange range = range_of(type);
  if (__builtin_expect(value < range.low || value > range.high, 0))
    does_not_fit(value, range, op, launch, number);
  return value;
}

template <class T>
uint64_t word_of(T value) {
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(value));
  return word;
}

uint64_t pack_scalar(const ScalarValue& value, ScalarType type, const char* op,
                     const LaunchSpec& launch, std::size_t number) {
  if (is_float_type(type)) return pack_float(value.f, type);
  return static_cast<uint64_t>(checked_int(value.i, type, op, launch, number));
}

// Bit 85 of a map must be clear for a tensor under 128 KiB, and drivers up to CUDA 13.1 set it.
// Blackwell then takes wrong addresses for what is outside the tensor; Hopper does not read the
// bit.
constexpr int kLastDriverToCorrect = 13010;
constexpr uintptr_t kMapAlignment = 16;  // bytes: of a described tensor's address and strides
constexpr uint64_t kSmallTensor = 128 * 1024;

// Whether a tensor, from its first byte to its last, is under 128 KiB. Extents and strides in bytes
// from the innermost dimension, whose stride is an element.
bool is_small(const cuuint64_t* extents, const cuuint64_t* strides, std::size_t rank,
              uint64_t elem_bytes) {
  uint64_t bytes = elem_bytes, more;
  for (std::size_t i = 0; i < rank; ++i) {
    if (__builtin_mul_overflow(extents[i] - 1, i == 0 ? elem_bytes : strides[i - 1], &more) ||
        __builtin_add_overflow(bytes, more, &bytes))
      return false;
  }
  return bytes < kSmallTensor;
}

// What the driver refuses of a map and does not say; empty if it is nothing known.
std::string why_refused(const void* address, const cuuint64_t* extents, const cuuint64_t* strides,
                        std::size_t rank) {
  const auto place = reinterpret_cast<uintptr_t>(address);
  if (place % kMapAlignment != 0)
    return "expected an address divisible by 16, got " + std::to_string(place);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::string dim = std::to_string(rank - 1 - i);
    if (extents[i] == 0) return "expected extent " + dim + " to be at least 1, got 0";
    if (i > 0 && strides[i - 1] % kMapAlignment != 0) {
      return "expected stride " + dim + " to be a multiple of 16 bytes, got " +
             std::to_string(strides[i - 1]);
    }
  }
  return "";
}

void encode_map(const TensorMapRule& rule, const CallFrame& frame, const LaunchSpec& launch,
                std::size_t number, CUtensorMap& out) {
  const Driver& api = driver();
  if (api.tensor_map_encode_tiled == nullptr) {
    raise(ErrorKind::kToolchain,
          "the CUDA driver lacks cuTensorMapEncodeTiled: install a driver for CUDA 12 or newer");
  }
  const std::size_t rank = rule.box.size();
  cuuint64_t extents[5], strides[5];
  cuuint32_t box[5], ones[5];
  for (std::size_t i = 0; i < rank; ++i) {  // the driver counts dimensions from the innermost
    const std::size_t from = rank - 1 - i;
    extents[i] = static_cast<cuuint64_t>(frame.slots[rule.shape[from]]);
    box[i] = rule.box[from];
    ones[i] = 1;
    if (i > 0)
      strides[i - 1] = static_cast<cuuint64_t>(frame.slots[rule.strides[from]]) * rule.elem_bytes;
  }
  const CUresult result = api.tensor_map_encode_tiled(
      &out, static_cast<CUtensorMapDataType>(rule.elem_type), static_cast<cuuint32_t>(rank),
      frame.tensors[rule.tensor], extents, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
      static_cast<CUtensorMapSwizzle>(rule.swizzle), CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      rule.nans ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
                : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    const std::string what = std::string(frame.op) + ": " + argument_text(launch, number) +
                             ", a tensor map of tensor " + std::to_string(rule.tensor);
    const std::string why = why_refused(frame.tensors[rule.tensor], extents, strides, rank);
    if (!why.empty()) raise(ErrorKind::kArgument, what, ": ", why);
    raise_driver(result, what + ": cuTensorMapEncodeTiled");
  }
  if (api.version <= kLastDriverToCorrect && is_small(extents, strides, rank, rule.elem_bytes))
    out.opaque[1] &= ~(cuuint64_t{1} << 21);
}

}  // namespace

// The bytes of a value at the start of a word (both supported machines are little-endian).
uint64_t pack_float(double value, ScalarType type) {
  switch (type) {
    case ScalarType::kF16:
      return half_bits(value);
    case ScalarType::kBF16:
      return bfloat16_bits(value);
    case ScalarType::kF32:
      return word_of(static_cast<float>(value));
    default:
      return word_of(value);
  }
}

double round_to_type(double value, ScalarType type) {
  switch (type) {
    case ScalarType::kF16:
      return round_to_format(value, 11, -14, 65504.0);
    case ScalarType::kBF16:
      return round_to_format(value, 8, -126, 0x1.FEp127);
    case ScalarType::kF32:
      return static_cast<double>(static_cast<float>(value));
    default:
      return value;
  }
}

uint16_t bfloat16_bits(double value) {
  const float exact = static_cast<float>(round_to_type(value, ScalarType::kBF16));
  uint32_t bits;
  std::memcpy(&bits, &exact, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16 | (std::isnan(value) ? 0x40 : 0));
}

uint16_t half_bits(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7E00;
  const double magnitude = std::fabs(round_to_type(value, ScalarType::kF16));
  if (std::isinf(magnitude)) return sign | 0x7C00;
  if (magnitude < 0x1p-14)
    return sign | static_cast<uint16_t>(magnitude * 0x1p24);  // subnormal, zero included
  const int exponent = std::ilogb(magnitude);
  const auto fraction = static_cast<uint16_t>((std::ldexp(magnitude, -exponent) - 1.0) * 1024.0);
  return static_cast<uint16_t>(sign | ((exponent + 15) << 10) | fraction);
}

void pack_cuda(const LaunchSpec& launch, const CallFrame& frame, CudaParams& out) {
  std::size_t i = 0;
  for (const ParamRule& param : launch.params) {
    uint64_t& word = out.words[i];
    out.pointers[i++] = &word;
    switch (param.kind) {
      case ParamRule::kTensor:
        word = reinterpret_cast<uint64_t>(frame.tensors[param.index]);
        break;
      case ParamRule::kWorkspace:
        word = reinterpret_cast<uint64_t>(frame.workspaces[param.index]);
        break;
      case ParamRule::kSlot:
        word = static_cast<uint64_t>(
            checked_int(frame.slots[param.index], param.type, frame.op, launch, i - 1));
        break;
      case ParamRule::kScalar:
        word = pack_scalar(frame.scalars[param.index], param.type, frame.op, launch, i - 1);
        break;
      case ParamRule::kNull:
        word = 0;
        break;
      case ParamRule::kGlobalScratch:
        word = reinterpret_cast<uint64_t>(frame.global_scratch);
        break;
      case ParamRule::kTensorMap:
        encode_map(launch.maps[param.index], frame, launch, i - 1, out.maps[param.index]);
        out.pointers[i - 1] = &out.maps[param.index];
        break;
      case ParamRule::kNumber:
        word = launch.numbers[param.index];
    }
  }
}

void pack_cpu(const LaunchSpec& launch, const CallFrame& frame, TileopsValue* out) {
  std::size_t i = 0;
  for (const ParamRule& param : launch.params) {
    switch (param.kind) {
      case ParamRule::kTensor:
        out->p = frame.tensors[param.index];
        break;
      case ParamRule::kWorkspace:
        out->p = frame.workspaces[param.index];
        break;
      case ParamRule::kSlot:
        out->i = checked_int(frame.slots[param.index], param.type, frame.op, launch, i);
        break;
      case ParamRule::kScalar:
        if (is_float_type(param.type))
          out->f = round_to_type(frame.scalars[param.index].f, param.type);
        else
          out->i = checked_int(frame.scalars[param.index].i, param.type, frame.op, launch, i);
        break;
      default:
        out->p = nullptr;
    }
    ++out;
    ++i;
  }
}

}  // namespace tileops
