// Owns the ops that come from bundles: registered with torch, without source, compiler or Python.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "core/bundle.h"
#include "core/cpu_level.h"
#include "torch/api.h"
#include "torch/op.h"

namespace tileops {
namespace {

struct BundleOp {
  uint64_t handle = 0;
  std::string identity;
  std::string origin;  // for messages
  std::set<std::string> aliases;
};

// By qualified name; entries stay, as the ops do.
struct BundleOps {
  std::mutex mutex;
  std::map<std::string, BundleOp> ops;
};

BundleOps& bundle_ops() {
  static BundleOps* table = new BundleOps();
  return *table;
}

bool is_cpu(const BundledEntry& entry) {
  return entry.target.rfind("cpu:", 0) == 0;
}

// The entries that some device here could run; of several for one CPU key the best stands first,
// because a key keeps its first entry.
std::vector<const BundledEntry*> usable_entries(const BundledVariant& variant) {
  std::vector<const BundledEntry*> usable;
  for (const BundledEntry& entry : variant.entries) {
    if (!is_cpu(entry) || cpu_target_rank(entry.target) >= 0) usable.push_back(&entry);
  }
  std::stable_sort(usable.begin(), usable.end(), [](const BundledEntry* a, const BundledEntry* b) {
    return cpu_target_rank(a->target) > cpu_target_rank(b->target);
  });
  return usable;
}

std::string qualified(const OpSpec& spec) {
  return spec.ns + "::" + spec.name;
}

// Reads everything once before anything is registered: torch keeps what it was given.
void check(const Bundle& bundle, const BundledOp& op) {
  const auto read = [&](const auto& description) { return naming(op.file, description); };
  const OpSpec spec = read([&] { return OpSpec::from_json(op.op()); });
  for (const BundledVariant& variant : op.variants) {
    const VariantSpec variant_spec =
        read([&] { return VariantSpec::from_json(*variant.description, spec); });
    for (const BundledEntry& entry : variant.entries) {
      const EntrySpec::ImageMap images = bundle.images(entry);
      read([&] {
        const EntrySpec made =
            EntrySpec::from_json(*entry.description, spec, variant_spec, images, 0);
        if (made.cuda == is_cpu(entry))
          raise(ErrorKind::kInternal, "an entry for ", entry.target, " names another device");
      });
    }
  }
  const auto& known = bundle_ops().ops;
  const auto found = known.find(qualified(spec));
  if (found != known.end() && found->second.identity != op.identity) {
    raise(ErrorKind::kArgument, bundle.path(), ": the op ", qualified(spec),
          " came with another schema from ", found->second.origin);
  }
}

std::string origin_of(const Bundle& bundle, const BundledOp& op) {
  std::vector<std::string> targets;
  for (const BundledVariant& variant : op.variants) {
    for (const BundledEntry& entry : variant.entries) targets.push_back(entry.target);
  }
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  std::string text = "the bundle " + bundle.path() + " (";
  for (std::size_t i = 0; i < targets.size(); ++i) text += (i == 0 ? "" : ", ") + targets[i];
  return text + ")";
}

LoadedOp add(const Bundle& bundle, const BundledOp& bundled) {
  OpSpec spec = OpSpec::from_json(bundled.op());
  LoadedOp loaded{0, spec.ns, spec.name, bundled.text};
  BundleOp& known = bundle_ops().ops[qualified(spec)];
  if (known.origin.empty()) {
    known = {create_op(std::move(spec)), bundled.identity, origin_of(bundle, bundled), {}};
  } else if (known.origin.find(bundle.path() + " (") == std::string::npos) {
    known.origin += " and " + origin_of(bundle, bundled);
  }
  loaded.handle = known.handle;
  for (const std::string& name : bundled.aliases) {
    if (known.aliases.insert(name).second) alias_op(known.handle, name);
  }
  Op& op = op_of_handle(known.handle);
  op.seal(known.origin);
  for (const BundledVariant& variant : bundled.variants) {
    const uint32_t number = op.add_variant(*variant.description);
    for (const BundledEntry* entry : usable_entries(variant))
      op.add_entry(number, *entry->description, bundle.images(*entry));
  }
  return loaded;
}

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

}  // namespace

std::vector<LoadedOp> load_bundle(const std::string& path) {
  const Bundle bundle = Bundle::open(path);
  std::lock_guard<std::mutex> lock(bundle_ops().mutex);
  for (const BundledOp& op : bundle.ops()) check(bundle, op);
  std::vector<LoadedOp> loaded;
  for (const BundledOp& op : bundle.ops()) loaded.push_back(add(bundle, op));
  return loaded;
}

}  // namespace tileops

extern "C" int tileops_load_bundle(const char* path) {
  using namespace tileops;
  try {
    last_error().clear();
    // Where there is no Python, nothing else has read the one variable that finds faults.
    const char* wanted = std::getenv("TILEOPS_SYNC");
    for (const char* yes : {"1", "true", "yes", "on"}) {
      if (wanted != nullptr && std::string(wanted) == yes) set_sync(true);
    }
    return static_cast<int>(load_bundle(path == nullptr ? "" : path).size());
  } catch (const Error& error) {
    last_error() = std::string(error_class_name(error.kind())) + ": " + error.what();
  } catch (const std::exception& error) {
    last_error() = error.what();
  }
  return -1;
}

extern "C" const char* tileops_last_error() {
  return tileops::last_error().c_str();
}
