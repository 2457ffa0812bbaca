// The table of all ops and their registration with torch.
#include <atomic>
#include <mutex>
#include <set>

#include "core/counters.h"
#include "core/driver.h"
#include "core/forks.h"
#include "core/hooks.h"
#include "core/launch.h"
#include "torch/api.h"
#include "torch/bind.h"
#include "torch/op.h"
#include "torch/stubs.h"

namespace tileops {
namespace {

// An op that writes its inputs has a second slot after its own: the stub that torch calls instead
// where an input is a lazily negated view. Torch's own rule for such views ends the process if an
// op that writes one returns nothing.
std::atomic<Op*> slots[kStubCount];
std::atomic<uint32_t> slot_count{0};
std::atomic<bool> strict_mode{false};
std::atomic<bool> sync_mode{false};

// What its text is called in errors.
constexpr char kDescription[] = "op description";

// Held while torch's own tables change: a child would find those half changed for ever.
Mutex registration_mutex;
// What was registered, for leak checkers; under registration_mutex.
Lasting<std::vector<TorchLibraryHandle>> kept_libraries;

// A torch::Library; destroying it would deregister what it registered, so a successful one is
// leaked on purpose.
class Library {
 public:
  static Library fragment(const std::string& ns) {
    Library library;
    check_torch(aoti_torch_library_init_fragment(ns.c_str(), __FILE__, __LINE__, &library.handle_),
                "torch.library");
    return library;
  }
  static Library implementation(const std::string& ns, const char* key) {
    Library library;
    check_torch(aoti_torch_library_init_impl(ns.c_str(), key, __FILE__, __LINE__, &library.handle_),
                "torch.library");
    return library;
  }
  Library(Library&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~Library() {
    if (handle_ != nullptr) aoti_torch_delete_library_object(handle_);
  }
  TorchLibraryHandle get() const { return handle_; }
  void keep() { kept_libraries.get().push_back(std::exchange(handle_, nullptr)); }

 private:
  Library() = default;
  TorchLibraryHandle handle_ = nullptr;
};

// The names that torch has from here, under the lock of registration.
Lasting<std::set<std::string>> registered_names;

// What is added to `libraries` is deregistered with them, until they are kept.
void register_with_torch(const OpSpec& op, const std::string& name, uint32_t slot,
                         std::vector<Library>& libraries) {
  Library definition = Library::fragment(op.ns);
  const std::string schema = name + op.schema.substr(op.schema.find('('));
  if (aoti_torch_library_def(definition.get(), schema.c_str()) != 0) {
    raise(ErrorKind::kArgument, "torch refused to define ", op.ns, "::", schema,
          " (is the name taken by another library?)");
  }
  libraries.push_back(std::move(definition));
  const std::vector<const char*> keys = op.has_tensor
                                            ? std::vector<const char*>{"CPU", "CUDA"}
                                            : std::vector<const char*>{"CompositeExplicitAutograd"};
  const auto implement = [&](const char* key, uint32_t stub) {
    libraries.push_back(Library::implementation(op.ns, key));
    // The version selects the meaning of the stack's words.
    check_torch(torch_library_impl(libraries.back().get(), name.c_str(), stub_address(stub),
                                   kTorchInterface),
                "torch_library_impl");
  };
  for (const char* key : keys) implement(key, slot);
  if (op.has_mutated) implement("Negative", slot + 1);
}

void torch_parallel(int64_t count, ParallelBody body, void* context) {
  check_torch(torch_parallel_for(0, count, 1, body, context), "torch_parallel_for");
}

void forget_other_threads() {
  const uint32_t count = slot_count.load(std::memory_order_acquire);
  for (uint32_t slot = 0; slot < count; ++slot) {
    Op* op = op_in_slot(slot);
    if (op->handle() == slot) op->forget_other_threads();  // once an op, which may have two slots
  }
  Op::Stay::count_own();
}

int torch_threads() {
  // The threads of torch's pool end with the process that started them: a forked child that asked
  // for them would wait for ever.
  if (is_forked_child()) return 1;
  uint32_t threads = 1;
  return torch_get_num_threads(&threads) == 0 ? static_cast<int>(threads) : 1;
}

}  // namespace

Op* op_in_slot(uint32_t slot) {
  return slots[slot].load(std::memory_order_acquire);
}

Op& op_of_handle(uint64_t handle) {
  Op* op = handle < kStubCount ? op_in_slot(static_cast<uint32_t>(handle)) : nullptr;
  if (op == nullptr) raise(ErrorKind::kInternal, "there is no op with handle ", handle);
  return *op;
}

void install_torch_hooks() {
  renew_in_child(forget_other_threads);
  hooks().parallel_for = torch_parallel;
  hooks().thread_count = torch_threads;
}

uint64_t create_op(const std::string& op_json) {
  std::vector<Registration> wanted(1);
  wanted[0].spec = naming(kDescription, [&] { return OpSpec::from_json(json::parse(op_json)); });
  register_together(wanted);
  return wanted[0].handle;
}

namespace {

// Ops and names on their way to torch, under the lock of registration: taken back unless kept.
class Registering {
 public:
  Registering() : first_(slot_count.load()), end_(first_) {}
  ~Registering() {
    if (is_kept_) return;
    while (!libraries_.empty()) libraries_.pop_back();  // the latest first
    for (uint32_t slot = first_; slot < end_; ++slot) slots[slot].store(nullptr);
  }
  Registering(const Registering&) = delete;
  Registering& operator=(const Registering&) = delete;

  void add(Registration& wanted) {
    const OpSpec* spec = nullptr;
    if (wanted.spec) {
      wanted.handle = place(std::move(*wanted.spec));
      spec = &ops_.back()->spec;
      name(*spec, spec->name, wanted.handle);
    } else {
      spec = &op_of_handle(wanted.handle).spec;
    }
    for (const std::string& alias : wanted.aliases) name(*spec, alias, wanted.handle);
  }

  void keep() {
    is_kept_ = true;
    for (Library& library : libraries_) library.keep();
    registered_names.get().insert(names_.begin(), names_.end());
    slot_count.store(end_);
    for (auto& op : ops_) op.release();  // they live as long as the process: torch may call them
  }

 private:
  uint64_t place(OpSpec spec) {
    if (spec.args.size() > kMaxArgs)
      raise(ErrorKind::kArgument, spec.title(), ": an op takes at most ", kMaxArgs,
            " arguments, got ", spec.args.size());
    if (spec.returns.size() > kMaxOutputs)
      raise(ErrorKind::kArgument, spec.title(), ": an op returns at most ", kMaxOutputs,
            " tensors, got ", spec.returns.size());
    const uint32_t slot = end_, end = slot + (spec.has_mutated ? 2 : 1);
    if (end > kStubCount)
      raise(ErrorKind::kArgument, spec.title(), ": this process has reached the limit of ",
            kStubCount, " ops");
    ops_.push_back(std::make_unique<Op>(std::move(spec), slot));
    for (; end_ < end; ++end_) slots[end_].store(ops_.back().get(), std::memory_order_release);
    return slot;
  }

  void name(const OpSpec& spec, const std::string& text, uint64_t handle) {
    register_with_torch(spec, text, static_cast<uint32_t>(handle), libraries_);
    names_.push_back(spec.ns + "::" + text);
  }

  uint32_t first_, end_;
  bool is_kept_ = false;
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<Library> libraries_;
  std::vector<std::string> names_;
};

}  // namespace

void register_together(std::vector<Registration>& wanted) {
  std::lock_guard<Mutex> lock(registration_mutex);
  install_torch_hooks();
  Registering registering;
  for (Registration& one : wanted) registering.add(one);
  registering.keep();
}

bool is_registered(const std::string& qualified_name) {
  std::lock_guard<Mutex> lock(registration_mutex);
  return registered_names.get().count(qualified_name) != 0;
}

std::size_t registered_count() {
  std::lock_guard<Mutex> lock(registration_mutex);
  return registered_names.get().size();
}

uint32_t add_variant(uint64_t handle, const std::string& text) {
  Op& op = op_of_handle(handle);
  return naming(kDescription, [&] { return op.add_variant(json::parse(text)); });
}

void add_entry(uint64_t handle, uint32_t variant, const std::string& text,
               const EntrySpec::ImageMap& images) {
  Op& op = op_of_handle(handle);
  naming(kDescription, [&] { op.add_entry(variant, json::parse(text), images); });
}

Resolver set_resolver(uint64_t handle, Resolver resolver) {
  return op_of_handle(handle).set_resolver(resolver);
}

void keep_given(uint64_t handle) {
  op_of_handle(handle).keep_given();
}

void retire_op(uint64_t handle, const std::string& message) {
  op_of_handle(handle).retire(message);
}

void set_origin(uint64_t handle, const std::string& text) {
  op_of_handle(handle).set_origin(text);
}

void detach(uint64_t handle) {
  op_of_handle(handle).detach();
}

void release(uint64_t handle) {
  op_of_handle(handle).release();
}

void set_strict(bool value) {
  strict_mode.store(value, std::memory_order_relaxed);
}

bool strict() {
  return strict_mode.load(std::memory_order_relaxed);
}

void set_sync(bool value) {
  sync_mode.store(value, std::memory_order_relaxed);
}

bool sync() {
  return sync_mode.load(std::memory_order_relaxed);
}

}  // namespace tileops
