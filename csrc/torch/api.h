// The control plane of libtileops: what a binding or a C++ program calls to define ops and add
// kernels.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/spec.h"

namespace tileops {

// What a call found missing.
struct Request {
  enum Kind { kVariant, kEntry } kind = kVariant;
  uint64_t handle = 0;
  const OpSpec* op = nullptr;
  std::vector<StaticValue>
      statics;  // kVariant: static arguments, then whether each optional tensor was given
  // kEntry:
  uint32_t variant = 0;
  bool cuda = false;
  int device_index = 0;
  int capability = 0;
  std::vector<int64_t> consts;
  bool fast = false, index64 = false;
  std::vector<std::pair<std::string, int64_t>> sizes;
  std::vector<std::pair<std::string, StaticValue>> scalars;  // int, float or bool
  std::size_t entries = 0;                                   // how many the variant has already
};

// Adds the missing variant or entry before it returns, or throws.
struct Resolver {
  void (*call)(void* context, const Request& request) = nullptr;
  void* context = nullptr;
};

// Registers the op with torch; its handle stays valid forever.
TILEOPS_API uint64_t create_op(const std::string& op_json);
TILEOPS_API uint32_t add_variant(uint64_t handle, const std::string& variant_json);
TILEOPS_API void add_entry(uint64_t handle, uint32_t variant, const std::string& entry_json,
                           const EntrySpec::ImageMap& images);
// Returns the resolver that was there before, whose context the caller owns again.
TILEOPS_API Resolver set_resolver(uint64_t handle, Resolver resolver);
// From now on a static argument that is given its default's value selects a variant of its own.
TILEOPS_API void keep_given(uint64_t handle);
TILEOPS_API void retire_op(uint64_t handle, const std::string& message);
// Where the program is defined, for errors of the device.
TILEOPS_API void set_origin(uint64_t handle, const std::string& text);
// Takes the op's variants, entries and code out of its calls' reach: the next call asks the
// resolver again. Calls that are inside finish with what they found.
TILEOPS_API void detach(uint64_t handle);
// Frees what was detached, after the calls inside and their kernels have finished.
TILEOPS_API void release(uint64_t handle);

// An op of the bundle in the folder `path`, as it is registered now; `text` is its op.json.
struct LoadedOp {
  uint64_t handle = 0;
  std::string ns, name, text, path;
};

// How a bundle is loaded.
struct BundleOptions {
  bool shared = false;         // true: others may have written it
  std::string ns;              // for all of its ops, in place of their own; empty: their own
  std::set<std::string> left;  // ops that are not registered, by qualified name
};

// Registers the ops of the bundles in some folders, or adds to those that an earlier bundle
// brought: to an op of the same program only, as the digests of both bundles tell. What a bundle
// lacks is a CompileMissError of the call that needs it. Raises ArgumentError for a bundle that is
// missing, damaged or not trusted, and for a name that this process has given to another op;
// nothing of any of the bundles is registered then.
TILEOPS_API std::vector<LoadedOp> load_bundles(const std::vector<std::string>& paths,
                                               const BundleOptions& options);
// What that would register, without doing it.
TILEOPS_API std::vector<LoadedOp> read_bundles(const std::vector<std::string>& paths,
                                               const BundleOptions& options);

// Gives the op of a bundle to the program behind its resolver, which must be set: its calls ask it
// for variants and kernels from now on, and to later bundles the name is that of a program.
TILEOPS_API void adopt_op(uint64_t handle);

// In strict mode a missing kernel is an error instead of a compile.
TILEOPS_API void set_strict(bool strict);
TILEOPS_API bool strict();

// With `sync` each CUDA call waits for its kernels, so that a fault is the error of the op that
// caused it.
TILEOPS_API void set_sync(bool sync);
TILEOPS_API bool sync();

// True if torch's current stream on the device records a graph; false where torch or the driver has
// no CUDA.
TILEOPS_API bool is_capturing(int device_index);

// One entry of a variant: a device, the values of its constant sizes, and facts.
struct EntryChoice {
  bool cuda = false;
  int device_index = 0;
  std::vector<int64_t> consts;
  bool fast = false, index64 = false;
};
// Loads the code of an entry that was added, so that its first call makes no loading call.
TILEOPS_API void load_entry(uint64_t handle, uint32_t variant, const EntryChoice& choice);

// Runs an entry on raw addresses: the launch path without tensors, for tests on a recorded driver.
struct RawCall {
  bool cuda = true;
  int device_index = 0;
  bool fast = true, index64 = false;
  bool general = false;  // of several entries, the one that assumes no facts of numbers
  std::vector<int64_t> sizes;
  std::vector<int64_t>
      int_scalars;  // one for each scalar of the variant, used if its type is not a float
  std::vector<double> float_scalars;  // likewise where it is
  std::vector<uint64_t> tensors;
  uint64_t workspace = 0;
  uint64_t stream = 0;
};
TILEOPS_API void run_raw(uint64_t handle, uint32_t variant, const RawCall& call);

// Installs torch's intra-op threads as the parallel-for of CPU kernels; idempotent.
void install_torch_hooks();

}  // namespace tileops

// For C, and for programs that open this library with dlopen. Returns the number of ops that the
// bundle in the folder `path` brought, or -1; then `tileops_last_error` says why.
extern "C" TILEOPS_API int tileops_load_bundle(const char* path);
// The same with options, a JSON object: "namespace", of the ops in place of their own, and "trust",
// "shared" for a bundle that others may have written or "user", which is the default unless the
// environment has TILEOPS_CACHE_TRUST_SHARED. A null pointer means no options.
extern "C" TILEOPS_API int tileops_load_bundle_ex(const char* path, const char* json);
// The text of the last failure on this thread; empty if there was none. Valid until the next one.
extern "C" TILEOPS_API const char* tileops_last_error();

// Counters of this process in the text format of Prometheus. Valid until this thread's next call.
extern "C" TILEOPS_API const char* tileops_metrics_text();
// Whether this process can serve: 0 it can, 1 a part is missing, 2 it cannot. `json` may be null;
// it gets an object with "status", "problems" and facts, valid until this thread's next call.
extern "C" TILEOPS_API int tileops_health(const char** json);
