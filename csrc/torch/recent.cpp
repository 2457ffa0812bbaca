// The table of recent calls, one a thread, so that reading it takes no lock.
#include "torch/recent.h"

#include <cstring>

#include "core/launch.h"

namespace tileops {
namespace {

// Each place holds the latest call whose words lead there: 32 shapes of a thread's calls, 50 KiB.
constexpr std::size_t kPlaces = 32;

struct Table {
  std::unique_ptr<RecentCall> places[kPlaces];
};

__attribute__((tls_model("initial-exec"))) thread_local Table* table = nullptr;

// Frees the table with its thread; a call that a later destructor makes goes without.
struct Owner {
  bool has_ended = false;
  ~Owner() {
    delete std::exchange(table, nullptr);
    has_ended = true;
  }
};
thread_local Owner owner;

std::size_t place_of(const CallWords& words) {
  return words.hash() % kPlaces;
}

bool reads_host_facts_or_floats(const HostProgram& host, const Binding& call) {
  for (const HostInput& input : host.inputs()) {
    if (input.kind == HostInput::kHost) return true;
    if (input.kind != HostInput::kScalar) continue;
    const ScalarRule& rule = call.variant->spec.scalars[input.index];
    if (call.op->spec.args[rule.arg].kind == ArgKind::kFloat) return true;
  }
  return false;
}

bool is_repeatable(const Binding& call, const Entry& entry) {
  const VariantSpec& variant = call.variant->spec;
  if (!call.copies.empty()) return false;
  for (const TensorRule& rule : variant.tensors) {
    if (rule.raw) return false;  // bound by the size of its storage
  }
  if (reads_host_facts_or_floats(variant.host, call) ||
      reads_host_facts_or_floats(entry.spec.host, call)) {
    return false;
  }
  std::size_t dims = 0;
  for (const OutputRule& output : entry.spec.outputs)
    dims += output_rank(output, call.leading_rank);
  return entry.spec.host.slot_count() <= RecentCall::kMostSlots &&
         variant.sizes.size() <= RecentCall::kMostSizes && dims <= RecentCall::kMostDims &&
         is_loaded(entry.spec, call.device_index);
}

void note_outputs(const Binding& call, const Entry& entry, const int64_t* slots,
                  RecentCall& recent) {
  std::size_t at = 0;
  recent.leading_rank = call.leading_rank;
  for (const OutputRule& output : entry.spec.outputs) {
    const std::size_t rank = output_rank(output, call.leading_rank);
    put_output_shape(output, call, slots, recent.shapes + at);
    int64_t step = 1;
    for (std::size_t d = rank; d-- > 0;) {
      int64_t& extent = recent.shapes[at + d];
      if (d + 1 == rank) extent /= output.pack;
      recent.strides[at + d] = step;
      step *= extent > 1 ? extent : 1;
    }
    at += rank;
  }
}

}  // namespace

bool CallWords::gather(const Op& op, const Inputs& inputs, const Binding& call) {
  if (call.meta) return false;
  put(op.handle());
  put(op.generation());
  put(device_word(call.cuda, call.device_index));
  const auto& args = op.spec.args;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (count_ + 2 > kMost) return false;
    if (args[i].role == ArgRole::kTensor) {
      if (!put_tensor(call.tensors[i])) return false;
    } else if (args[i].role == ArgRole::kStatic) {
      if (!put_static(inputs, i, args[i].kind)) return false;
    } else if (args[i].role == ArgRole::kScalar) {
      if (!inputs.has_value(i)) return false;
      if (args[i].kind != ArgKind::kFloat) put(static_cast<uint64_t>(inputs.scalar(i).i));
    }
  }
  return true;
}

bool CallWords::put_tensor(const TensorFacts& facts) {
  if (facts.handle == nullptr) {
    put(0);
    return true;
  }
  const auto rank = static_cast<std::size_t>(facts.rank);
  if (count_ + 1 + 2 * rank > kMost) return false;
  const bool aligned = (reinterpret_cast<uintptr_t>(facts.data) & 15) == 0;
  put(1u | (aligned ? 2u : 0u) | rank << 8 | static_cast<uint64_t>(facts.dtype) << 32);
  for (std::size_t d = 0; d < rank; ++d) put(static_cast<uint64_t>(facts.sizes[d]));
  for (std::size_t d = 0; d < rank; ++d) put(static_cast<uint64_t>(facts.strides[d]));
  return true;
}

bool CallWords::put_static(const Inputs& inputs, std::size_t arg, ArgKind kind) {
  if (!inputs.has_value(arg)) {
    put(0);
    return true;
  }
  if (kind != ArgKind::kInt && kind != ArgKind::kFloat && kind != ArgKind::kBool) return false;
  put(1);
  put(static_cast<uint64_t>(inputs.scalar(arg).i));  // of a float, its bits
  return true;
}

RecentCall* find_recent(const CallWords& words) {
  if (table == nullptr) return nullptr;
  RecentCall* found = table->places[place_of(words)].get();
  const bool same = found != nullptr && found->count == words.count() &&
                    std::memcmp(found->words, words.data(), words.count() * sizeof(uint64_t)) == 0;
  return same ? found : nullptr;
}

void remember(const CallWords& words, const Binding& call, const Entry& entry,
              const int64_t* slots) {
  if (!is_repeatable(call, entry) || owner.has_ended) return;
  if (table == nullptr) table = new Table();
  std::unique_ptr<RecentCall>& place = table->places[place_of(words)];
  if (place == nullptr) place = std::make_unique<RecentCall>();
  if (place->in_use) return;
  place->count = words.count();
  std::memcpy(place->words, words.data(), words.count() * sizeof(uint64_t));
  place->variant = call.variant;
  place->entry = &entry;
  std::memcpy(place->slots, slots, entry.spec.host.slot_count() * sizeof(int64_t));
  std::memcpy(place->sizes, call.sizes, call.variant->spec.sizes.size() * sizeof(int64_t));
  note_outputs(call, entry, slots, *place);
}

}  // namespace tileops
