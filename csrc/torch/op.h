// The run-time form of an op: its variants, their entries, and how a missing one is resolved.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/dispatch.h"
#include "core/forks.h"
#include "core/spec.h"
#include "torch/api.h"
#include "torch/portable.h"

namespace tileops {

struct Binding;
struct Choices;

// A compiled specialisation with torch's dtype numbers. Where `choices` is given it has nothing
// else: the facts of a call lead on to the entry.
struct Entry {
  EntrySpec spec;
  std::vector<int32_t> output_dtypes;
  std::unique_ptr<Choices> choices;
};

// The entries of one key, by the facts that their code assumes.
struct Choices {
  ChoiceSpec spec;  // its words mean nothing
  DispatchTable<Entry> entries;

  // The entry for a call, or null; under `general` the one that assumes nothing.
  const Entry* find(const Binding& call, bool general) const;
  void load(int device_index) const;
};

struct Variant {
  VariantSpec spec;
  uint32_t number = 0;
  std::vector<std::vector<int32_t>> tensor_dtypes;  // per tensor rule
  std::vector<int32_t> output_dtypes;
  DispatchTable<Entry> entries;
  PortableEntries portable;  // what bundles have for other GPUs than those of `entries`

  void add(const std::vector<uint64_t>& key, std::unique_ptr<Entry> entry);
};

// What a call can see; replaced as a whole by unload.
struct OpTables {
  DispatchTable<Variant> variants;
  // Where no argument selects a variant, and where every one that could is left to its default.
  std::atomic<Variant*> only{nullptr};
  Mutex mutex;
  std::map<uint32_t, Variant*> by_number;
};

std::vector<std::vector<int32_t>> codes_of(const std::vector<DTypeRule>& rules);

class Op {
 public:
  Op(OpSpec op_spec, uint32_t slot)
      : spec(std::move(op_spec)),
        rule_codes(codes_of(spec.dtype_rules)),
        slot_(slot),
        tables_(new OpTables()) {}

  const OpSpec spec;
  // Per dtype rule: torch's number for each dtype that it has stored, -1 where torch lacks it.
  const std::vector<std::vector<int32_t>> rule_codes;
  uint64_t handle() const { return slot_; }

  OpTables& tables() const { return *tables_.load(std::memory_order_seq_cst); }
  // How often the tables were replaced: what was found in them before is void.
  uint64_t generation() const { return generation_.load(std::memory_order_seq_cst); }
  const std::string* retired() const { return retired_.load(std::memory_order_acquire); }
  void retire(const std::string& message);
  // A static argument that is given its default's value is not one that was left out: a tuner
  // chooses for those.
  void keep_given() { keeps_given_.store(true, std::memory_order_relaxed); }
  bool keeps_given() const { return keeps_given_.load(std::memory_order_relaxed); }
  // Where the program is defined, for errors of the device; empty if unknown.
  std::string origin() const {
    const std::string* text = origin_.load(std::memory_order_acquire);
    return text == nullptr ? std::string() : *text;
  }
  void set_origin(const std::string& text) {
    origin_.store(new std::string(text), std::memory_order_release);
  }
  Resolver set_resolver(Resolver resolver);

  // Where the op's kernels come from if nothing can make more of them; null for other ops.
  const std::string* sealed() const { return sealed_.load(std::memory_order_acquire); }
  void seal(const std::string& origin);
  void unseal() { sealed_.store(nullptr, std::memory_order_release); }

  uint32_t add_variant(const json::Value& description);
  // `capability`, unless 0, is of the devices that run the entry in place of those that it names.
  void add_entry(uint32_t variant, const json::Value& description,
                 const EntrySpec::ImageMap& images, int capability = 0);
  Variant& variant(uint32_t number) const;

  // Replaces the tables. Calls inside the old ones go on, and may still add to them.
  void detach();
  // Frees replaced tables once no call is inside them. Not under a lock that a resolver takes: the
  // calls that are waited for may be resolving.
  void release();

  // Runs `request` through the resolver once, however many threads ask for `key` at the same time;
  // the others wait. `found` looks the result up again.
  template <class Found>
  void resolve(const std::vector<uint64_t>& key, const Request& request, Found found);

  // In a forked child: forgets the calls, the resolvers and the release of threads that are gone.
  void forget_other_threads();

  // A call's stay in the tables: release waits for the calls that entered before it.
  class Stay {
   public:
    explicit Stay(Op& op) : op_(op) {
      for (;;) {
        side_ = op_.side_.load(std::memory_order_seq_cst);
        op_.inside_[side_].fetch_add(1, std::memory_order_seq_cst);
        if (__builtin_expect(op_.side_.load(std::memory_order_seq_cst) == side_, 1)) break;
        op_.inside_[side_].fetch_sub(1, std::memory_order_seq_cst);
      }
      outer_ = innermost;
      innermost = this;
    }
    ~Stay() {
      innermost = outer_;
      op_.inside_[side_].fetch_sub(1, std::memory_order_release);
    }
    // In a forked child, once every op has forgotten: counts the calls that this thread is in.
    static void count_own();
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

   private:
    // Of this thread.
    static __thread Stay* innermost __attribute__((tls_model("initial-exec")));

    Op& op_;
    Stay* outer_;
    unsigned side_;
  };

 private:
  friend class Stay;
  bool begin_resolving(const std::vector<uint64_t>& key);
  void end_resolving(const std::vector<uint64_t>& key);
  void run_resolver(const Request& request);
  void begin_releasing();
  void end_releasing();

  const uint32_t slot_;
  std::atomic<OpTables*> tables_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<bool> keeps_given_{false};
  std::atomic<const std::string*> retired_{nullptr};
  std::atomic<const std::string*> sealed_{nullptr};
  std::atomic<const std::string*> origin_{nullptr};
  std::atomic<unsigned> side_{0};
  std::atomic<int64_t> inside_[2] = {};
  mutable Mutex detached_mutex_;
  std::vector<std::unique_ptr<OpTables>> detached_;
  std::atomic<uint32_t> next_variant_{0};

  mutable Mutex resolve_mutex_;
  bool is_releasing_ = false;  // some thread waits in release; under resolve_mutex_
  std::map<std::vector<uint64_t>, std::thread::id> resolving_;
  Resolver resolver_;
};

// An op to register, or one that exists already, with further names for it.
struct Registration {
  std::optional<OpSpec> spec;  // of an op to register
  uint64_t handle = 0;         // given for one that exists, else set by register_together
  std::vector<std::string> aliases;
};
// Registers ops and names with torch: all of them, or none where torch refuses one. Handles stay
// valid forever.
void register_together(std::vector<Registration>& wanted);
// True for a name that this library has registered with torch, `namespace::name`.
bool is_registered(const std::string& qualified_name);
// How many names that are.
std::size_t registered_count();
// The op in a slot; null where none was created.
Op* op_in_slot(uint32_t slot);
Op& op_of_handle(uint64_t handle);

template <class Found>
void Op::resolve(const std::vector<uint64_t>& key, const Request& request, Found found) {
  while (!found()) {
    if (!begin_resolving(key)) continue;  // another thread was at it
    struct End {
      Op* op;
      const std::vector<uint64_t>& key;
      ~End() { op->end_resolving(key); }
    } end{this, key};
    if (found()) return;
    const OpTables* tables = &this->tables();
    run_resolver(request);
    if (found()) return;
    // Another thread may have unloaded what was added. The tables of before live as long as this
    // call is inside: others have another address.
    if (tables != &this->tables()) continue;
    raise(ErrorKind::kInternal, spec.name, ": the resolver added no kernel for the call");
  }
}

}  // namespace tileops
