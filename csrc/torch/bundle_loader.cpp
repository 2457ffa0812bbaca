// The ops that come from bundles: registered with torch, without source, compiler or Python.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>

#include "core/bundle.h"
#include "core/cpu_level.h"
#include "core/forks.h"
#include "core/sha256.h"
#include "torch/api.h"
#include "torch/bind.h"
#include "torch/op.h"
#include "torch/shim.h"

namespace tileops {
namespace {

// What a bundle said of the program behind a variant.
struct KnownVariant {
  std::string digest;
  std::string file;
};

struct BundleOp {
  uint64_t handle = 0;
  std::string identity, definition;
  std::vector<std::pair<std::string, std::string>> parts;
  std::string origin;                                        // for messages
  std::vector<std::pair<std::string, std::string>> sources;  // files and their digests
  std::set<std::string> aliases;
  std::map<std::vector<uint64_t>, KnownVariant> variants;  // by the words of their static values
};

// By qualified name; entries stay, as the ops do.
struct BundleOps {
  Mutex mutex;
  std::map<std::string, BundleOp> ops;  // a Table
};

Lasting<BundleOps> made;

BundleOps& bundle_ops() {
  return made.get();
}

bool is_cpu(const BundledEntry& entry) {
  return entry.target.rfind("cpu:", 0) == 0;
}

// The entries that some device here could run; of several for one CPU key the best comes first,
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

std::vector<uint64_t> key_of(const VariantSpec& variant) {
  std::vector<uint64_t> key;
  for (const StaticValue& value : variant.statics) append_key_words(key, value);
  return key;
}

// What an entry for a GPU gives to other GPUs: nothing if it uses features of its own architecture.
std::optional<PortableEntry> portable_of(const Bundle& bundle, const BundledEntry& entry,
                                         const EntrySpec::ImageMap& images) {
  PortableEntry made;
  made.capability = portable_capability(entry.target);
  if (made.capability == 0) return std::nullopt;
  made.origin = bundle.path();
  made.place = entry.place;
  made.description = std::make_shared<const json::Value>(*entry.description);
  made.cubins = images;
  constexpr std::string_view kCubin = ".cubin";
  for (const json::Value& launch : entry.description->at("launches").as_array("launches")) {
    const std::string& name = launch.at("image").as_string("launches.image");
    const std::size_t stem = name.size() - std::min(name.size(), kCubin.size());
    const auto found = images.find(name.substr(0, stem) + ".ptx");
    if (name.compare(stem, std::string::npos, kCubin) != 0 || found == images.end()) {
      made.ptx.clear();
      break;
    }
    made.ptx[name] = found->second;
  }
  return made;
}

// One op of a bundle on its way into the process.
struct Wanted {
  const Bundle* bundle = nullptr;
  const BundledOp* op = nullptr;
  OpSpec spec;
  std::map<std::vector<uint64_t>, KnownVariant> variants;
  std::map<const BundledEntry*, EntrySpec::ImageMap> images;
};

using Table = std::map<std::string, BundleOp>;

constexpr const char* kBeside =
    "; to have both, load this bundle with namespace=\"...\" (in C tileops_load_bundle_ex)";

// Everything that adding would refuse: torch keeps what it was given.
void check_dtypes(const VariantSpec& variant, const std::string& name) {
  if (variant.sizes.size() > kMaxSizes)
    raise(ErrorKind::kInternal, name, ": more than ", kMaxSizes, " sizes");
  for (const TensorRule& rule : variant.tensors) {
    for (const std::string& dtype : rule.dtypes) dtype_code(dtype);
  }
  for (const OutputRule& output : variant.outputs) dtype_code(output.dtype);
}

void check_entry(const EntrySpec& entry, const std::string& name) {
  if (entry.outputs.size() > kMaxOutputs)
    raise(ErrorKind::kInternal, name, ": more than ", kMaxOutputs, " outputs");
  for (const OutputRule& output : entry.outputs) dtype_code(output.dtype);
}

// Reads everything once before anything is registered.
Wanted read(const Bundle& bundle, const BundledOp& op, const std::string& ns) {
  const auto named = [&](const auto& description) { return naming(op.file, description); };
  Wanted wanted;
  wanted.bundle = &bundle;
  wanted.op = &op;
  wanted.spec = named([&] { return OpSpec::from_json(op.op()); });
  if (!ns.empty()) wanted.spec.ns = ns;
  const OpSpec& spec = wanted.spec;
  for (const BundledVariant& variant : op.variants) {
    const VariantSpec variant_spec =
        named([&] { return VariantSpec::from_json(*variant.description, spec); });
    named([&] { check_dtypes(variant_spec, spec.name); });
    const auto placed = wanted.variants.insert({key_of(variant_spec), {variant.digest, op.file}});
    if (!placed.second) raise(ErrorKind::kInternal, op.file, ": one variant is described twice");
    for (const BundledEntry& entry : variant.entries) {
      const EntrySpec::ImageMap& images = wanted.images[&entry] = bundle.images(entry);
      named([&] {
        const EntrySpec made =
            EntrySpec::from_json(*entry.description, spec, variant_spec, images, 0);
        if (made.cuda == is_cpu(entry))
          raise(ErrorKind::kInternal, "an entry for ", entry.target, " names another device");
        check_entry(made, spec.name);
      });
    }
  }
  return wanted;
}

std::string static_text(const OpSpec& op, const std::vector<StaticValue>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string& name = i < op.key_args.size() ? op.args[op.key_args[i]].name
                                                     : op.dtype_rules[i - op.key_args.size()].name;
    text += (i == 0 ? " with " : ", ") + name + " = " + describe(values[i]);
  }
  return text;
}

// ArgumentError unless the op is the one that `known` is: the same program, as digests tell, in
// every variant that both have.
void check_same(const Wanted& wanted, const BundleOp& known) {
  const BundledOp& op = *wanted.op;
  const std::string name = wanted.spec.qualified();
  const std::string& file = known.sources.front().first;
  const auto source = std::make_pair(op.file, sha256_hex(op.text));
  const bool is_loaded =
      std::find(known.sources.begin(), known.sources.end(), source) != known.sources.end();
  if (is_loaded) return;  // the very file
  if (op.definition.empty() || known.definition.empty()) {
    raise(ErrorKind::kArgument, op.file, ": the op ", name, " came from ", file, " before, and ",
          op.definition.empty() ? op.file : file,
          " has format 1, which does not tell whether both are one program: write it anew with "
          "tileops.bundle",
          kBeside);
  }
  if (op.definition != known.definition || op.identity != known.identity) {
    raise(ErrorKind::kArgument, op.file, ": the op ", name, " is another program than that of ",
          file, " (they differ in: ", op.difference(known.parts), ")", kBeside);
  }
  for (const BundledVariant& variant : op.variants) {
    const VariantSpec spec = VariantSpec::from_json(*variant.description, wanted.spec);
    const auto found = known.variants.find(key_of(spec));
    if (found == known.variants.end() || found->second.digest == variant.digest) continue;
    raise(ErrorKind::kArgument, op.file, ": the op ", name, static_text(wanted.spec, spec.statics),
          " is another program than that of ", found->second.file, kBeside);
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

void check_namespace(const std::string& ns) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  const bool is_name =
      ns.empty() || (std::all_of(ns.begin(), ns.end(), is_word) && !(ns[0] >= '0' && ns[0] <= '9'));
  if (!is_name)
    raise(ErrorKind::kArgument, "namespace: expected ASCII letters, digits and _, got '", ns, "'");
}

// Bundles on their way into the process: all of them are checked before anything is registered.
class Loading {
 public:
  Loading() : table_(bundle_ops().ops) {}

  // ArgumentError for an op that is another program than one of this name, or whose names are held.
  void plan(const std::vector<Wanted>& all) {
    std::set<std::string> own;  // the ops of this bundle
    for (const Wanted& wanted : all) {
      const std::string name = wanted.spec.qualified();
      const auto known = table_.find(name);
      if (known != table_.end() && own.insert(name).second)
        check_same(wanted, known->second);
      else
        check_free(wanted, name);
      own.insert(name);
      for (const std::string& alias : wanted.op->aliases) {
        if (known == table_.end() || known->second.aliases.count(alias) == 0)
          check_free(wanted, wanted.spec.ns + "::" + alias);
      }
      note(wanted);
    }
  }

  // Registers what was planned; nothing in it fails but torch's refusal, which leaves nothing.
  void run() {
    Table& known = bundle_ops().ops;
    std::vector<Registration> made;
    for (const std::string& name : order_) {
      BundleOp& op = table_[name];
      const auto found = known.find(name);
      Registration one;
      if (found == known.end())
        one.spec = specs_.at(name);
      else
        one.handle = op.handle;
      for (const std::string& alias : op.aliases) {
        if (found == known.end() || found->second.aliases.count(alias) == 0)
          one.aliases.push_back(alias);
      }
      made.push_back(std::move(one));
    }
    register_together(made);
    for (std::size_t i = 0; i < made.size(); ++i) table_[order_[i]].handle = made[i].handle;
    known = table_;
  }

  LoadedOp add(const Wanted& wanted) const {
    const BundleOp& known = table_.at(wanted.spec.qualified());
    Op& op = op_of_handle(known.handle);
    op.seal(known.origin);
    for (const BundledVariant& variant : wanted.op->variants) {
      const uint32_t number = op.add_variant(*variant.description);
      for (const BundledEntry* entry : usable_entries(variant)) {
        const EntrySpec::ImageMap& images = wanted.images.at(entry);
        op.add_entry(number, *entry->description, images);
        if (auto portable = portable_of(*wanted.bundle, *entry, images))
          op.variant(number).portable.add(std::move(*portable));
      }
    }
    return {known.handle, wanted.spec.ns, wanted.spec.name, wanted.op->text, wanted.bundle->path()};
  }

 private:
  void check_free(const Wanted& wanted, const std::string& name) const {
    std::string holder = is_registered(name) ? "a program of this process" : "";
    for (const auto& other : table_) {
      const std::string ns = other.first.substr(0, other.first.find("::") + 2);
      const bool is_alias =
          name.rfind(ns, 0) == 0 && other.second.aliases.count(name.substr(ns.size())) != 0;
      if (other.first == name || is_alias) holder = other.second.sources.front().first;
    }
    if (!holder.empty())
      raise(ErrorKind::kArgument, wanted.op->file, ": the name ", name, " is held by ", holder,
            kBeside);
  }

  void note(const Wanted& wanted) {
    const BundledOp& bundled = *wanted.op;
    const std::string name = wanted.spec.qualified();
    if (specs_.insert({name, wanted.spec}).second) order_.push_back(name);
    BundleOp& op = table_[name];
    if (op.sources.empty()) {
      op.identity = bundled.identity;
      op.definition = bundled.definition;
      op.parts = bundled.parts;
      op.origin = origin_of(*wanted.bundle, bundled);
    } else if (op.origin.find(wanted.bundle->path() + " (") == std::string::npos) {
      op.origin += " and " + origin_of(*wanted.bundle, bundled);
    }
    op.sources.emplace_back(bundled.file, sha256_hex(bundled.text));
    op.aliases.insert(bundled.aliases.begin(), bundled.aliases.end());
    op.variants.insert(wanted.variants.begin(), wanted.variants.end());
  }

  Table table_;  // as it will be
  std::map<std::string, OpSpec> specs_;
  std::vector<std::string> order_;
};

std::vector<Wanted> read_all(const Bundle& bundle, const BundleOptions& options) {
  std::vector<Wanted> all;
  for (const BundledOp& op : bundle.ops()) {
    Wanted wanted = read(bundle, op, options.ns);
    if (options.left.count(wanted.spec.qualified()) == 0) all.push_back(std::move(wanted));
  }
  return all;
}

std::vector<Bundle> open_all(const std::vector<std::string>& paths, const BundleOptions& options) {
  check_namespace(options.ns);
  std::vector<Bundle> bundles;
  for (const std::string& path : paths)
    bundles.push_back(Bundle::open(path, Trust(options.shared)));
  return bundles;
}

// True where the environment has one of the words for yes, as Python's settings read them.
bool is_set(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return false;
  std::string word = text;
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* yes : {"1", "true", "yes", "on"}) {
    if (word == yes) return true;
  }
  return false;
}

BundleOptions options_of(const char* text) {
  BundleOptions options;
  options.shared = is_set("TILEOPS_CACHE_TRUST_SHARED");
  if (text == nullptr || *text == '\0') return options;
  const auto read = [&] {
    const json::Value value = json::parse(text);
    if (value.type != json::Type::kObject) raise(ErrorKind::kArgument, "expected an object");
    value.check_members({"trust", "namespace"}, "options");
    if (const json::Value* ns = value.find("namespace")) options.ns = ns->as_string("namespace");
    if (const json::Value* trust = value.find("trust")) {
      const std::string& word = trust->as_string("trust");
      if (word != "shared" && word != "user")
        raise(ErrorKind::kArgument, "trust: expected \"shared\" or \"user\", got '", word, "'");
      options.shared = word == "shared";
    }
  };
  naming("tileops_load_bundle_ex", read, ErrorKind::kArgument);
  return options;
}

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

}  // namespace

std::vector<LoadedOp> load_bundles(const std::vector<std::string>& paths,
                                   const BundleOptions& options) {
  const std::vector<Bundle> bundles = open_all(paths, options);
  std::lock_guard<Mutex> lock(bundle_ops().mutex);
  Loading loading;
  std::vector<std::vector<Wanted>> wanted;
  for (const Bundle& bundle : bundles) {
    wanted.push_back(read_all(bundle, options));
    loading.plan(wanted.back());
  }
  loading.run();
  std::vector<LoadedOp> loaded;
  for (const std::vector<Wanted>& all : wanted) {
    for (const Wanted& one : all) loaded.push_back(loading.add(one));
  }
  return loaded;
}

void adopt_op(uint64_t handle) {
  Op& op = op_of_handle(handle);
  std::lock_guard<Mutex> lock(bundle_ops().mutex);
  Table& table = bundle_ops().ops;
  for (auto found = table.begin(); found != table.end();)
    found = found->second.handle == handle ? table.erase(found) : std::next(found);
  // In this order: a call in between finds the bundle's kernels, or asks the program.
  op.unseal();
  op.detach();
}

std::vector<LoadedOp> read_bundles(const std::vector<std::string>& paths,
                                   const BundleOptions& options) {
  std::vector<LoadedOp> found;
  for (const Bundle& bundle : open_all(paths, options)) {
    for (const Wanted& one : read_all(bundle, options))
      found.push_back({0, one.spec.ns, one.spec.name, one.op->text, bundle.path()});
  }
  return found;
}

}  // namespace tileops

extern "C" int tileops_load_bundle_ex(const char* path, const char* json) {
  using namespace tileops;
  try {
    last_error().clear();
    // Without Python, nothing else has read the one variable that finds faults.
    if (is_set("TILEOPS_SYNC")) set_sync(true);
    const BundleOptions options = options_of(json);
    return static_cast<int>(load_bundles({path == nullptr ? "" : path}, options).size());
  } catch (const Error& error) {
    last_error() = std::string(error_class_name(error.kind())) + ": " + error.what();
  } catch (const std::exception& error) {
    last_error() = error.what();
  }
  return -1;
}

extern "C" int tileops_load_bundle(const char* path) {
  return tileops_load_bundle_ex(path, nullptr);
}

extern "C" const char* tileops_last_error() {
  return tileops::last_error().c_str();
}
