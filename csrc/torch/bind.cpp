// The hot checks of a call; torch/messages.cpp raises every failure.
#include "torch/bind.h"

#include <algorithm>

#include "core/launch.h"

namespace tileops {
namespace {

bool is_empty(const TensorFacts& facts) {
  for (int64_t i = 0; i < facts.rank; ++i) {
    if (facts.sizes[i] == 0) return true;
  }
  return false;
}

// Elements that offsets of 32 bits can count, those past the end that a last tile reaches included:
// one less than INDEX32_LIMIT of the tile IR.
constexpr int64_t kInt32Reach = INT32_MAX - (1 << 24);

// Elements from the first to the last one reached, the measure for 32-bit offsets. `pack` elements
// share one of torch's.
bool exceeds_int32(const int64_t* sizes, const int64_t* strides, std::size_t rank, int64_t pack) {
  int64_t reach = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    if (sizes[i] == 0) return false;
    int64_t step;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &step) ||
        __builtin_add_overflow(reach, step, &reach))
      return true;
  }
  return reach > kInt32Reach / pack;
}

bool fits(int64_t value, ScalarType type) {
  switch (type) {
    case ScalarType::kI1:
      return value == 0 || value == 1;
    case ScalarType::kI8:
      return value >= INT8_MIN && value <= INT8_MAX;
    case ScalarType::kI16:
      return value >= INT16_MIN && value <= INT16_MAX;
    case ScalarType::kI32:
      return value >= INT32_MIN && value <= INT32_MAX;
    case ScalarType::kU8:
      return value >= 0 && value <= UINT8_MAX;
    case ScalarType::kU16:
      return value >= 0 && value <= UINT16_MAX;
    case ScalarType::kU32:
      return value >= 0 && value <= UINT32_MAX;
    case ScalarType::kU64:
      return value >= 0;
    default:
      return true;
  }
}

class Binder {
 public:
  Binder(Binding& call) : call_(call), spec_(call.variant->spec) {}

  void run(const Inputs& inputs) {
    if (call_.op->spec.has_mutated) check_overlaps(call_);
    bind_scalars(inputs, call_);
    for (std::size_t i = 0; i < spec_.tensors.size(); ++i) bind_tensor(i);
    if (bound_count_ != spec_.sizes.size()) bind_free_strides();
    check_equalities();
    for (uint16_t size : spec_.align_sizes) call_.fast &= (call_.sizes[size] & 15) == 0;
  }

 private:
  void set_size(const TensorRule& rule, std::size_t dim, uint16_t size, int64_t value,
                bool is_stride) {
    uint64_t& word = bound_[size / 64];
    const uint64_t bit = uint64_t{1} << (size % 64);
    if ((word & bit) == 0) {
      word |= bit;
      ++bound_count_;
      call_.sizes[size] = value;
    } else if (__builtin_expect(call_.sizes[size] != value, 0)) {
      fail_bound(call_, rule, dim, is_stride);
    }
  }

  void bind_tensor(std::size_t number) {
    const TensorRule& rule = spec_.tensors[number];
    const TensorFacts& facts = call_.tensors[rule.arg];
    if (rule.raw) {
      bind_raw(facts);
      return;
    }
    bool known = false;
    for (int32_t dtype : call_.variant->tensor_dtypes[number]) known |= dtype == facts.dtype;
    if (__builtin_expect(!known, 0)) fail_dtype(call_, rule);
    if (__builtin_expect(rule.leading, 0)) flatten(rule);
    if (__builtin_expect(static_cast<std::size_t>(facts.rank) != rule.shape.size(), 0))
      fail_rank(call_, rule);
    for (std::size_t i = 0; i < rule.shape.size(); ++i) {
      const int64_t extent = extent_of(rule, facts, i);
      bind_dim(rule, i, extent);
      call_.fast &= extent != 0;  // no tensor map has an extent of zero
    }
    if (rule.contiguous)
      check_contiguous(rule, facts);
    else
      bind_strides(rule, facts);
    call_.fast &= (reinterpret_cast<uintptr_t>(facts.data) & 15) == 0;
    call_.index64 |= exceeds_int32(facts.sizes, facts.strides, rule.shape.size(), rule.pack);
  }

  // Lets the facts of a tensor show its leading dimensions as one.
  __attribute__((noinline)) void flatten(const TensorRule& rule) {
    TensorFacts& facts = call_.tensors[rule.arg];
    const std::size_t dims = rule.shape.size();
    if (static_cast<std::size_t>(facts.rank) + 1 < dims) fail_rank(call_, rule);
    const std::size_t count = static_cast<std::size_t>(facts.rank) + 1 - dims;
    if (call_.leading == nullptr) {
      call_.leading = facts.sizes;
      call_.leading_rank = count;
      call_.leading_arg = rule.arg;
      if (2 * spec_.leading_dims > sizeof(call_.flat_inline) / sizeof(int64_t))
        call_.flat_heap.reset(new int64_t[2 * spec_.leading_dims]);
      flat_ = call_.flat_heap ? call_.flat_heap.get() : call_.flat_inline;
    } else if (count != call_.leading_rank ||
               !std::equal(facts.sizes, facts.sizes + count, call_.leading)) {
      fail_leading(call_, rule);
    }
    int64_t step = 1;
    if (rule.contiguous) {
      check_contiguous(rule, facts);
    } else if (!has_one_stride(facts, count, step)) {
      if (!call_.op->spec.copies) fail_leading_layout(call_, rule);
      copy_contiguous(call_, rule.arg);
    }
    has_one_stride(facts, count, step);
    int64_t product = 1;
    for (std::size_t d = 0; d < count; ++d) {
      // Where another extent is 0, no memory bounds the product.
      if (__builtin_mul_overflow(product, facts.sizes[d], &product)) product = INT64_MAX;
    }
    if (std::find(facts.sizes, facts.sizes + count, 0) != facts.sizes + count) product = 0;
    call_.index64 |= product > INT32_MAX;
    int64_t* sizes = flat_;
    int64_t* strides = flat_ + dims;
    flat_ += 2 * dims;
    sizes[0] = product;
    strides[0] = step;
    std::copy(facts.sizes + count, facts.sizes + facts.rank, sizes + 1);
    std::copy(facts.strides + count, facts.strides + facts.rank, strides + 1);
    facts.sizes = sizes;
    facts.strides = strides;
    facts.rank = static_cast<int64_t>(dims);
  }

  // Whether the first `count` dimensions can be viewed as one, and with which stride; `step` is
  // left alone where none is stepped over.
  static bool has_one_stride(const TensorFacts& facts, std::size_t count, int64_t& step) {
    if (is_empty(facts)) return true;
    int64_t expected = 0;
    bool is_first = true;
    for (std::size_t d = count; d-- > 0;) {
      if (facts.sizes[d] == 1) continue;
      if (is_first)
        step = expected = facts.strides[d];
      else if (facts.strides[d] != expected)
        return false;
      is_first = false;
      expected *= facts.sizes[d];
    }
    return true;
  }

  void bind_raw(const TensorFacts& facts) {
    call_.fast &= (reinterpret_cast<uintptr_t>(facts.data) & 15) == 0;
    // The program reads other types at the address than the tensor has: bytes count.
    int64_t bytes = 0;
    check_torch(aoti_torch_get_storage_size(facts.handle, &bytes), "aoti_torch_get_storage_size");
    call_.index64 |= bytes > kInt32Reach;
  }

  void bind_dim(const TensorRule& rule, std::size_t dim, int64_t extent) {
    const DimRule& dim_rule = rule.shape[dim];
    if (dim_rule.kind == DimRule::kBind) {
      set_size(rule, dim, dim_rule.index, extent, false);
    } else if (dim_rule.kind == DimRule::kSolve) {
      const int64_t scaled = extent - dim_rule.shift;
      if (scaled < 0 || scaled % dim_rule.scale != 0) fail_solve(call_, rule, dim);
      set_size(rule, dim, dim_rule.index, scaled / dim_rule.scale, false);
    }
  }

  [[noreturn]] __attribute__((cold, noinline)) void refuse_layout(const TensorRule& rule,
                                                                  const TensorFacts& facts) {
    int64_t step = 1;
    const std::size_t count = static_cast<std::size_t>(facts.rank) + 1 - rule.shape.size();
    if (rule.leading && !has_one_stride(facts, count, step)) fail_leading_layout(call_, rule);
    fail_contiguous(call_, rule);
  }

  // Dimensions of extent 0 and 1 are never stepped over: their strides mean nothing.
  void check_contiguous(const TensorRule& rule, const TensorFacts& facts) {
    int64_t expected = 1;
    for (int64_t i = facts.rank - 1; i >= 0; --i) {
      if (facts.sizes[i] != 1) {
        if (__builtin_expect(facts.strides[i] != expected && !is_empty(facts), 0)) {
          if (!call_.op->spec.copies) refuse_layout(rule, facts);
          return copy_contiguous(call_, rule.arg);
        }
        expected *= facts.sizes[i];
      }
    }
  }

  void bind_strides(const TensorRule& rule, const TensorFacts& facts) {
    if (is_empty(facts)) return;
    for (std::size_t i = 0; i < rule.strides.size(); ++i) {
      if (facts.sizes[i] > 1 && rule.strides[i].kind == DimRule::kBind) {
        set_size(rule, i, rule.strides[i].index, stride_of(rule, facts, i), true);
      }
    }
  }

  // A stride of an extent of 0 or 1 that nothing else binds takes the value that a contiguous
  // tensor would have, so that it spoils neither alignment nor 32-bit offsets.
  void bind_free_strides() {
    for (const TensorRule& rule : spec_.tensors) {
      const TensorFacts& facts = call_.tensors[rule.arg];
      int64_t expected = 1;
      for (std::size_t i = rule.strides.size(); i-- > 0;) {
        const uint16_t size = rule.strides[i].index;
        if (rule.strides[i].kind == DimRule::kBind && (bound_[size / 64] >> (size % 64) & 1) == 0) {
          set_size(rule, i, size, expected, true);
        }
        expected *= facts.sizes[i] > 1 ? extent_of(rule, facts, i) : 1;
      }
    }
    if (bound_count_ != spec_.sizes.size()) {
      raise(ErrorKind::kInternal, call_.op->spec.title(),
            ": a size of the op is bound by no argument");
    }
  }

  void check_equalities() {
    const HostProgram& host = spec_.host;
    if (host.slot_count() == 0) return;
    SmallBuffer<int64_t, 64> buffer(host.slot_count());
    int64_t* slots = buffer.data();
    evaluate_host(host, call_, slots);
    for (const TensorRule& rule : spec_.tensors) check_tensor_equalities(rule, slots);
    for (const OutputRule& output : spec_.outputs)
      call_.index64 |= output_exceeds_int32(output, slots);
  }

  void check_tensor_equalities(const TensorRule& rule, const int64_t* slots) {
    const TensorFacts& facts = call_.tensors[rule.arg];
    for (std::size_t i = 0; i < rule.shape.size(); ++i) {
      if (rule.shape[i].kind != DimRule::kEqual) continue;
      const int64_t expected = slots[rule.shape[i].index];
      if (__builtin_expect(extent_of(rule, facts, i) != expected, 0))
        fail_equal(call_, rule, i, expected);
    }
    for (std::size_t i = 0; i < rule.strides.size(); ++i) {
      if (rule.strides[i].kind != DimRule::kEqual || facts.sizes[i] <= 1 || is_empty(facts))
        continue;
      const int64_t expected = slots[rule.strides[i].index];
      if (__builtin_expect(stride_of(rule, facts, i) != expected, 0))
        fail_stride(call_, rule, i, expected);
    }
  }

  static bool output_exceeds_int32(const OutputRule& output, const int64_t* slots) {
    int64_t count = 1;
    for (uint16_t slot : output.shape) {
      if (slots[slot] == 0) return false;
      if (__builtin_mul_overflow(count, slots[slot], &count)) return true;
    }
    return count > kInt32Reach;
  }

  Binding& call_;
  const VariantSpec& spec_;
  uint64_t bound_[kMaxSizes / 64] = {};
  std::size_t bound_count_ = 0;
  int64_t* flat_ = nullptr;  // free places of the call's
};

}  // namespace

void read_tensors(const Inputs& inputs, Binding& call) {
  const auto& args = call.op->spec.args;
  const TorchCodes& codes = torch_codes();
  constexpr std::size_t kNone = kMaxArgs;
  std::size_t first = kNone;
  for (std::size_t i = 0; i < args.size(); ++i) {
    call.tensors[i].handle = nullptr;
    if (args[i].kind != ArgKind::kTensor) continue;
    AtenTensorHandle handle = inputs.tensor(i);
    if (handle == nullptr) continue;
    read_facts(handle, call.op->spec, i, call.tensors[i]);
    if (first == kNone) first = i;
    const TensorFacts& one = call.tensors[first];
    const TensorFacts& other = call.tensors[i];
    const bool supported = other.device_type == codes.cpu || other.device_type == codes.cuda;
    if (__builtin_expect(!supported || one.device_type != other.device_type ||
                             one.device_index != other.device_index,
                         0)) {
      fail_device(call, first, i);
    }
  }
  if (first == kNone) return;
  call.cuda = call.tensors[first].device_type == codes.cuda;
  call.device_index = call.cuda ? call.tensors[first].device_index : 0;
}

void bind_scalars(const Inputs& inputs, Binding& call) {
  const std::vector<ScalarRule>& rules = call.variant->spec.scalars;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const ScalarRule& rule = rules[i];
    call.scalars[i] = inputs.scalar(rule.arg);
    const bool is_float = call.op->spec.args[rule.arg].kind == ArgKind::kFloat;
    if (is_float_type(rule.type)) {
      if (!is_float) call.scalars[i].f = static_cast<double>(call.scalars[i].i);
    } else if (is_float || !fits(call.scalars[i].i, rule.type)) {
      fail_scalar_range(call, rule, is_float ? 0 : call.scalars[i].i);
    }
  }
}

void bind_sizes(const Inputs& inputs, Binding& call) {
  Binder(call).run(inputs);
}

void evaluate_host(const HostProgram& host, const Binding& call, int64_t* slots) {
  std::size_t i = 0;
  for (const HostInput& input : host.inputs()) {
    switch (input.kind) {
      case HostInput::kSize:
        slots[i] = call.sizes[input.index];
        break;
      case HostInput::kScalar:
        slots[i] = call.scalars[input.index].i;
        break;
      case HostInput::kHost:
        slots[i] = host_fact(call.cuda, call.device_index, static_cast<HostFact>(input.index));
    }
    ++i;
  }
  if (host.has_code()) host.evaluate(slots, call.op->spec.name.c_str());
}

void evaluate_entry(const EntrySpec& entry, const Binding& call, int64_t* slots) {
  evaluate_host(entry.host, call, slots);
  for (const AssertRule& rule : entry.asserts) {
    if (__builtin_expect(slots[rule.slot] == 0, 0))
      raise(ErrorKind::kArgument, call.op->spec.title(), ": ", rule.text);
  }
}

}  // namespace tileops
