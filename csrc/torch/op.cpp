// Ops at run time: variants, entries, unloading, and the once-only resolution of what is
// missing.
#include "torch/op.h"

#include <iterator>
#include <mutex>

#include "core/counters.h"
#include "core/forks.h"
#include "core/hooks.h"
#include "core/json.h"
#include "torch/bind.h"
#include "torch/shim.h"

namespace tileops {
namespace {

// The capability of the device that the resolver running on this thread works for; 0 outside
// resolvers.
thread_local int resolving_capability = 0;

std::vector<int32_t> dtype_codes(const std::vector<std::string>& names) {
  std::vector<int32_t> codes;
  for (const std::string& name : names) codes.push_back(dtype_code(name));
  return codes;
}

// True for the variant of calls that leave every compile-time argument to its default and every
// optional tensor out.
bool is_default(const OpSpec& op, const VariantSpec& variant) {
  if (!op.dtype_rules.empty()) return false;
  for (std::size_t i = 0; i < op.key_args.size(); ++i) {
    const bool is_tensor = op.args[op.key_args[i]].kind == ArgKind::kTensor;
    if (variant.statics[i] != (is_tensor ? StaticValue(false) : StaticValue())) return false;
  }
  return true;
}

}  // namespace

void Op::retire(const std::string& message) {
  // The former message, if any, stays alive: a call may be reading it.
  retired_.store(new std::string(message), std::memory_order_release);
}

void Op::seal(const std::string& origin) {
  sealed_.store(new std::string(origin), std::memory_order_release);  // as with retire
}

Resolver Op::set_resolver(Resolver resolver) {
  std::lock_guard<Mutex> lock(resolve_mutex_);
  return std::exchange(resolver_, resolver);
}

Variant& Op::variant(uint32_t number) const {
  const auto in = [number](OpTables& tables) -> Variant* {
    std::lock_guard<Mutex> lock(tables.mutex);
    const auto found = tables.by_number.find(number);
    return found == tables.by_number.end() ? nullptr : found->second;
  };
  if (Variant* found = in(tables())) return *found;
  std::lock_guard<Mutex> lock(detached_mutex_);
  for (const auto& tables : detached_) {
    if (Variant* found = in(*tables)) return *found;
  }
  raise(ErrorKind::kInternal, spec.title(), ": there is no variant ", number);
}

uint32_t Op::add_variant(const json::Value& description) {
  auto variant = std::make_unique<Variant>();
  variant->spec = VariantSpec::from_json(description, spec);
  if (variant->spec.sizes.size() > kMaxSizes)
    raise(ErrorKind::kInternal, spec.title(), ": more than ", kMaxSizes, " sizes");
  for (const TensorRule& rule : variant->spec.tensors)
    variant->tensor_dtypes.push_back(dtype_codes(rule.dtypes));
  for (const OutputRule& output : variant->spec.outputs)
    variant->output_dtypes.push_back(dtype_code(output.dtype));
  std::vector<uint64_t> key;
  for (const StaticValue& value : variant->spec.statics) append_key_words(key, value);
  OpTables& tables = this->tables();
  std::lock_guard<Mutex> lock(tables.mutex);
  // A number is used once, whatever tables its variant was in.
  const uint32_t number = next_variant_.fetch_add(1);
  variant->number = number;
  Variant* placed = tables.variants.insert(key, std::move(variant));
  if (placed->number == number) {
    tables.by_number[number] = placed;
    if (is_default(spec, placed->spec)) tables.only.store(placed, std::memory_order_release);
  }
  return placed->number;
}

void Op::add_entry(uint32_t number, const json::Value& description,
                   const EntrySpec::ImageMap& images, int capability) {
  Variant& target = variant(number);
  auto entry = std::make_unique<Entry>();
  entry->spec = EntrySpec::from_json(description, spec, target.spec, images, resolving_capability);
  if (capability != 0) entry->spec.capability = capability;
  if (entry->spec.outputs.size() > kMaxOutputs) {
    raise(ErrorKind::kInternal, spec.title(), ": more than ", kMaxOutputs, " outputs");
  }
  for (const OutputRule& output : entry->spec.outputs)
    entry->output_dtypes.push_back(dtype_code(output.dtype));
  const EntrySpec& made = entry->spec;
  std::vector<uint64_t> key = {device_word(made.cuda, made.capability)};
  for (int64_t value : made.consts) key.push_back(static_cast<uint64_t>(value));
  key.push_back(entry_flags(made.fast, made.index64));
  target.add(key, std::move(entry));
}

void Op::detach() {
  std::lock_guard<Mutex> lock(detached_mutex_);
  detached_.emplace_back(tables_.exchange(new OpTables(), std::memory_order_seq_cst));
  generation_.fetch_add(1, std::memory_order_seq_cst);
}

void Op::begin_releasing() {
  std::lock_guard<Mutex> lock(resolve_mutex_);
  for (const auto& flight : resolving_) {
    if (flight.second == std::this_thread::get_id()) {
      raise(ErrorKind::kArgument, spec.title(), ": unload was called from its own resolver");
    }
  }
  while (is_releasing_) resolve_mutex_.wait();
  is_releasing_ = true;
}

void Op::end_releasing() {
  {
    std::lock_guard<Mutex> lock(resolve_mutex_);
    is_releasing_ = false;
  }
  announce_change();
}

void Op::release() {
  const GilReleaseScope no_gil;  // the calls that are waited for may need it
  begin_releasing();
  struct End {
    Op* op;
    ~End() { op->end_releasing(); }
  } end{this};
  const unsigned side = side_.load(std::memory_order_seq_cst);
  std::size_t count = 0;
  {
    std::lock_guard<Mutex> lock(detached_mutex_);
    count = detached_.size();
  }
  side_.store(1 - side, std::memory_order_seq_cst);
  // Under no Mutex: what is waited for can take as long as a compile, and a fork may not.
  while (inside_[side].load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  // What was detached before the side changed; later tables have calls of the new side inside.
  // Freed at the end, under no Mutex.
  std::vector<std::unique_ptr<OpTables>> old;
  std::lock_guard<Mutex> lock(detached_mutex_);
  for (std::size_t i = 0; i < count; ++i) old.push_back(std::move(detached_[i]));
  detached_.erase(detached_.begin(), detached_.begin() + static_cast<std::ptrdiff_t>(count));
}

bool Op::begin_resolving(const std::vector<uint64_t>& key) {
  GilReleaseScope no_gil;  // the resolver needs the interpreter's lock
  std::lock_guard<Mutex> lock(resolve_mutex_);
  auto flight = resolving_.find(key);
  if (flight == resolving_.end()) {
    resolving_.emplace(key, std::this_thread::get_id());
    return true;
  }
  if (flight->second == std::this_thread::get_id()) {
    raise(ErrorKind::kInternal, spec.title(),
          ": its resolver called the op in a way that needs what is being resolved");
  }
  while (resolving_.find(key) != resolving_.end()) resolve_mutex_.wait();
  return false;
}

void Op::end_resolving(const std::vector<uint64_t>& key) {
  {
    std::lock_guard<Mutex> lock(resolve_mutex_);
    resolving_.erase(key);
  }
  announce_change();
}

void Op::forget_other_threads() {
  for (auto flight = resolving_.begin(); flight != resolving_.end();) {
    const bool is_own = flight->second == std::this_thread::get_id();
    flight = is_own ? std::next(flight) : resolving_.erase(flight);
  }
  is_releasing_ = false;
  for (auto& inside : inside_) inside.store(0, std::memory_order_relaxed);
}

__thread Op::Stay* Op::Stay::innermost = nullptr;

void Op::Stay::count_own() {
  for (const Stay* stay = innermost; stay != nullptr; stay = stay->outer_)
    stay->op_.inside_[stay->side_].fetch_add(1, std::memory_order_relaxed);
}

void Op::run_resolver(const Request& request) {
  Resolver resolver;
  {
    std::lock_guard<Mutex> lock(resolve_mutex_);
    resolver = resolver_;
  }
  if (resolver.call == nullptr)
    raise(ErrorKind::kCompileMiss, spec.title(),
          ": no kernel fits the call and no resolver is set");
  struct Capability {
    int outer = resolving_capability;
    explicit Capability(int value) { resolving_capability = value; }
    ~Capability() { resolving_capability = outer; }
  } scope(request.capability);
  count(Counter::kResolves);
  resolver.call(resolver.context, request);
}

}  // namespace tileops
