// Owns reading bundles: the chain of digests from bundle.json down to a program's files.
#include "core/bundle.h"

#include "core/error.h"

namespace tileops {
namespace {

constexpr uint64_t kTextLimit = 64u << 20;  // bytes; as the JSON reader's

// A file's or folder's own name: nothing that could lead elsewhere.
const std::string& checked_name(const std::string& name) {
  const bool plain =
      !name.empty() && name.size() <= 255 && name[0] != '.' &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
          std::string::npos;
  if (!plain) raise(ErrorKind::kInternal, "bundle: '", name, "' is no name of a file");
  return name;
}

void check_format(const json::Value& value, const char* what) {
  if (value.at("format").as_int("format") != 1)
    raise(ErrorKind::kInternal, "bundle: ", what, ": format is not 1");
}

std::vector<std::pair<std::string, FileFact>> read_facts(const json::Value& value,
                                                         const char* where) {
  if (value.type != json::Type::kObject)
    raise(ErrorKind::kInternal, "bundle: ", where, " is no object");
  std::vector<std::pair<std::string, FileFact>> facts;
  for (const auto& member : value.members)
    facts.emplace_back(member.first, FileFact::from_json(member.second));
  return facts;
}

BundledEntry read_entry(const json::Value& value) {
  BundledEntry entry;
  entry.target = value.at("target").as_string("entries.target");
  entry.program = checked_name(value.at("program").as_string("entries.program"));
  entry.manifest = FileFact::from_json(value.at("manifest"));
  entry.description = &value.at("entry");
  return entry;
}

// The part of the text that describes the op itself; it stands first, then the variants.
std::string identity_of(const json::Value& op) {
  std::string text = op.at("namespace").as_string("namespace");
  text += "::" + op.at("schema").as_string("schema");
  for (const json::Value& arg : op.at("args").as_array("args")) {
    const json::Value* mutated = arg.find("mutated");
    text += "|" + arg.at("name").as_string("args.name") + ":" +
            arg.at("kind").as_string("args.kind") + ":" + arg.at("role").as_string("args.role") +
            (mutated != nullptr && mutated->as_bool("args.mutated") ? "!" : "");
  }
  for (const json::Value& item : op.at("returns").as_array("returns"))
    text += "|" + item.as_string("returns");
  return text;
}

}  // namespace

BundleIndex BundleIndex::from_json(const json::Value& value) {
  check_format(value, "bundle.json");
  BundleIndex index;
  index.ops = read_facts(value.at("ops"), "ops");
  for (const auto& op : index.ops) checked_name(op.first);
  return index;
}

ProgramManifest ProgramManifest::from_json(const json::Value& value) {
  check_format(value, "manifest.json");
  return ProgramManifest{read_facts(value.at("files"), "files")};
}

BundledOp BundledOp::from_text(std::string text) {
  BundledOp op;
  op.document = json::parse(text);
  op.text = std::move(text);
  check_format(op.document, "op.json");
  op.identity = identity_of(op.op());
  if (const json::Value* aliases = op.document.find("aliases")) {
    for (const json::Value& name : aliases->as_array("aliases"))
      op.aliases.push_back(name.as_string("aliases"));
  }
  for (const json::Value& item : op.document.at("variants").as_array("variants")) {
    BundledVariant variant;
    variant.description = &item.at("variant");
    for (const json::Value& entry : item.at("entries").as_array("entries"))
      variant.entries.push_back(read_entry(entry));
    op.variants.push_back(std::move(variant));
  }
  return op;
}

Bundle Bundle::open(const std::string& path) {
  Bundle bundle;
  bundle.path_ = path;
  const BundleIndex index =
      BundleIndex::from_json(json::parse(read_file(path + "/bundle.json", kTextLimit)));
  for (const auto& op : index.ops) {
    bundle.ops_.push_back(
        BundledOp::from_text(read_verified(path + "/ops/" + op.first + "/op.json", op.second)));
  }
  return bundle;
}

EntrySpec::ImageMap Bundle::images(const BundledEntry& entry) const {
  const std::string folder = path_ + "/programs/" + entry.program + "/";
  const ProgramManifest manifest = ProgramManifest::from_json(
      json::parse(read_verified(folder + "manifest.json", entry.manifest)));
  EntrySpec::ImageMap images;
  for (const auto& file : manifest.files) {
    // Files in folders below are for people; a launch's image is beside the manifest.
    if (file.first.find('/') != std::string::npos) continue;
    const std::string& name = checked_name(file.first);
    images[name] =
        ImageSource{entry.program.substr(0, 12) + "/" + name, "", folder + name, file.second};
  }
  return images;
}

}  // namespace tileops
