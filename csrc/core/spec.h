// The parsed forms of op.json, variants and entries: what is fixed when an op, variant or
// entry is added.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/choice.h"
#include "core/host_program.h"
#include "core/image.h"
#include "core/json.h"

namespace tileops {

enum class ArgKind : uint8_t { kTensor, kInt, kFloat, kBool, kString, kIntList, kDevice };
enum class ArgRole : uint8_t { kTensor, kScalar, kStatic, kDevice };

// The value of a static argument: null, int, float, bool, str, list of ints.
using StaticValue =
    std::variant<std::monostate, int64_t, double, bool, std::string, std::vector<int64_t>>;
void append_key_words(std::vector<uint64_t>& words, const StaticValue& value);
std::string describe(const StaticValue& value);

struct ArgSpec {
  std::string name;
  ArgKind kind;
  ArgRole role;
  bool optional;
  bool mutated;
  // A call that gives this value means the same as one that leaves the argument out.
  StaticValue standard = std::monostate{};
};

// A dtype that a call decides: that of the tensors `args`, which agree. It selects a variant.
struct DTypeRule {
  std::string name;
  std::vector<uint16_t> args;
  // torch's dtype and the tile dtype that a tensor of it has.
  std::vector<std::pair<std::string, std::string>> stored;
};

struct OpSpec {
  std::string ns, name, schema;
  std::vector<ArgSpec> args;
  std::vector<uint16_t> returns;   // numbers of allocated outputs
  std::vector<uint16_t> key_args;  // what selects a variant: static arguments, optional tensors,
  std::vector<DTypeRule> dtype_rules;  // and dtypes
  bool has_tensor = false;
  bool has_keys = false;  // any of them: a variant is chosen per call
  bool has_mutated = false;
  bool copies = false;  // inputs that are not contiguous are copied instead of refused

  static OpSpec from_json(const json::Value& value);
  std::string qualified() const { return ns + "::" + name; }
  // The name in messages, without the namespace that most ops have.
  std::string title() const { return ns == "tileops" ? name : qualified(); }
};

struct DimRule {
  enum Kind : uint8_t { kBind, kSolve, kEqual } kind;
  uint16_t index;                // size number, or slot for kEqual
  int64_t scale = 1, shift = 0;  // kSolve: dim = size * scale + shift
};

struct TensorRule {
  uint16_t arg;
  std::string name;
  std::vector<std::string> dtypes;
  std::vector<DimRule> shape;
  bool contiguous = true;
  std::vector<DimRule> strides;  // where not contiguous
  int64_t pack = 1;              // elements in one of torch's, along the last dimension
  bool raw = false;              // any tensor: only its address is taken
  bool leading = false;          // the first dimension is the product of any number of them
};

struct SizeSpec {
  std::string name;
  bool is_const;
  int bits;
};

enum class ScalarType : uint8_t {
  kPtr,
  kI1,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64
};
ScalarType scalar_type_of(const std::string& text, const char* where);         // "i32", "ptr"
ScalarType scalar_type_of_dtype(const std::string& dtype, const char* where);  // "int32"
bool is_float_type(ScalarType type);

struct ScalarRule {
  uint16_t arg;
  std::string name;
  std::string dtype;
  ScalarType type;
};

struct OutputRule {
  std::string dtype;
  std::vector<uint16_t> shape;  // slots
  int64_t pack = 1;             // elements in one of torch's, along the last dimension
  bool leading = false;         // the first slot is the product of the call's leading dimensions
};

// A run-time size by which entries are chosen. Its key word is the number of upper bounds below the
// value, or the value itself where there are none.
struct BucketRule {
  uint16_t size;
  std::vector<int64_t> bounds;  // ascending

  uint64_t word(int64_t value) const {
    if (bounds.empty()) return static_cast<uint64_t>(value);
    return static_cast<uint64_t>(std::lower_bound(bounds.begin(), bounds.end(), value) -
                                 bounds.begin());
  }
};

// The checks and bindings of one combination of static arguments.
struct VariantSpec {
  std::vector<StaticValue> statics;
  std::vector<TensorRule> tensors;
  std::vector<SizeSpec> sizes;
  std::vector<uint16_t> const_sizes;  // numbers, in order: they are key words
  std::vector<BucketRule> buckets;    // key words after those of const_sizes
  std::vector<ScalarRule> scalars;
  HostProgram host;
  std::vector<uint16_t> align_sizes;
  std::vector<OutputRule> outputs;

  std::size_t leading_dims = 0;  // of all tensors with leading dimensions, as the rules count them

  // How many sizes choose an entry.
  std::size_t key_sizes() const { return const_sizes.size() + buckets.size(); }
  std::vector<std::string> size_names() const;
  std::vector<std::string> scalar_names() const;
  static VariantSpec from_json(const json::Value& value, const OpSpec& op);
};

struct TensorMapRule {
  uint16_t tensor = 0;  // the described tensor
  std::vector<uint32_t> box;
  std::vector<uint16_t> shape, strides;  // slots; strides in elements, the last is 1
  int swizzle, elem_type;
  uint32_t elem_bytes;
  bool nans = false;  // elements outside are NaN, not 0
};

struct ParamRule {
  enum Kind : uint8_t {
    kTensor,
    kWorkspace,
    kSlot,
    kScalar,
    kNull,
    kGlobalScratch,
    kTensorMap,
    kNumber
  } kind;
  ScalarType type = ScalarType::kPtr;
  uint16_t index = 0;  // tensor, workspace, scalar, slot, or number in LaunchSpec::maps, ::numbers
};

struct LaunchSpec {
  std::string entry, label;
  uint16_t grid = 0;                  // slot
  std::vector<uint16_t> more_grid;    // CUDA: slots of the second and third extent
  uint32_t more_threads[2] = {1, 1};  // CUDA: the second and third extent of a block
  uint32_t threads = 0;               // CUDA
  uint64_t scratch_bytes = 0;         // CPU: a thread's arena; CUDA: global scratch a block
  int64_t grain = 1;                  // CPU: fewest blocks worth a task
  uint32_t cluster = 1;               // CUDA: thread blocks for each of the grid's
  bool dependent = false;             // CUDA: may start before the launch ahead of it has ended
  bool cooperative = false;           // CUDA: all blocks run at once
  std::vector<ParamRule> params;
  std::vector<TensorMapRule> maps;
  std::vector<uint64_t> numbers;  // what every call passes, as packed
  std::unique_ptr<CudaKernel> cuda;
  std::unique_ptr<CpuKernel> cpu;
  // For errors: the kernel as its author calls it, and the first parameters of a foreign one.
  std::string title;
  std::vector<std::string> names;
};

// Position of a program tensor: an argument of the op or an allocated output.
struct TensorSource {
  bool is_output;
  uint16_t index;
};

// What a failed check of the program says. `kind` is "index", "nan" or "assert"; `at` is the place
// in the program's file, empty where unknown.
struct CheckReport {
  std::string kind, what, at;
  int64_t bound = 0;

  std::string text(int64_t value) const;
};

// A condition of sizes and scalars that the program states outside of its launches.
struct AssertRule {
  uint16_t slot;
  std::string text;
};

// One compiled specialisation; immutable once published, never freed while a call can see it.
struct EntrySpec {
  bool cuda;
  int capability;  // 0 for the CPU
  std::vector<int64_t> consts;
  bool fast, index64;
  HostProgram host;
  std::vector<OutputRule> outputs;
  std::vector<uint16_t> workspaces;  // slots with byte counts
  bool has_memory = false;           // workspaces, or global scratch on CUDA
  std::vector<TensorSource> tensors;
  std::vector<LaunchSpec> launches;
  std::unique_ptr<ChoiceSpec> choice;  // null where the key says all
  int status = -1;                     // CUDA: the workspace in which checks report, -1 for none
  std::string config;  // the compile-time values that it was compiled for, for errors of the device
  std::vector<AssertRule> asserts;
  std::map<int64_t, CheckReport> reports;  // by statement (CPU) or check (CUDA)

  using ImageMap = std::map<std::string, ImageSource>;
  static EntrySpec from_json(const json::Value& value, const OpSpec& op, const VariantSpec& variant,
                             const ImageMap& images, int default_capability);
};

inline uint64_t device_word(bool cuda, int capability) {
  return (static_cast<uint64_t>(cuda ? 1 : 0) << 32) | static_cast<uint64_t>(capability);
}
inline uint64_t entry_flags(bool fast, bool index64) {
  return (fast ? 1u : 0u) | (index64 ? 2u : 0u);
}

}  // namespace tileops
