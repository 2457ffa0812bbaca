// The reader of bundles: it follows the digests from bundle.json down to a program's files.
#include "core/bundle.h"

#include <algorithm>

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
  if (!plain) raise(ErrorKind::kInternal, "'", name, "' is not the name of a file");
  return name;
}

void check_format(const json::Value& value) {
  const int64_t format = value.at("format").as_int("format");
  if (format != 1) raise(ErrorKind::kInternal, "expected format 1, got ", format);
}

std::string read_digest(const json::Value& value, const char* where) {
  const std::string& text = value.as_string(where);
  if (text.size() != 64 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    raise(ErrorKind::kInternal, where, ": expected 64 hexadecimal digits");
  return text;
}

// Format 2 of op.json: what tells its program from another of the same name.
void read_definition(const json::Value& value, BundledOp& op) {
  value.check_members({"format", "op", "definition", "parts", "aliases", "variants"}, "op.json");
  op.definition = read_digest(value.at("definition"), "definition");
  const json::Value& parts = value.at("parts");
  if (parts.type != json::Type::kObject) raise(ErrorKind::kInternal, "parts: expected an object");
  for (const auto& part : parts.members)
    op.parts.emplace_back(part.first, read_digest(part.second, "parts"));
}

std::vector<std::pair<std::string, FileFact>> read_facts(const json::Value& value,
                                                         const char* where) {
  if (value.type != json::Type::kObject) raise(ErrorKind::kInternal, where, ": expected an object");
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

// The part of the text that describes the op itself; it comes first, then the variants.
std::string identity_of(const json::Value& op) {
  std::string text = op.at("schema").as_string("schema");
  for (const json::Value& arg : op.at("args").as_array("args")) {
    const json::Value* mutated = arg.find("mutated");
    text += "|" + arg.at("name").as_string("args.name") + ":" +
            arg.at("kind").as_string("args.kind") + ":" + arg.at("role").as_string("args.role") +
            (mutated != nullptr && mutated->as_bool("args.mutated") ? "!" : "");
  }
  for (const json::Value& item : op.at("returns").as_array("returns"))
    text += "|" + item.as_string("returns");
  const json::Value* contiguous = op.find("contiguous");
  if (contiguous != nullptr) text += "|" + contiguous->as_string("contiguous");
  return text;
}

}  // namespace

BundleIndex BundleIndex::from_json(const json::Value& value) {
  check_format(value);
  BundleIndex index;
  index.ops = read_facts(value.at("ops"), "ops");
  for (const auto& op : index.ops) checked_name(op.first);
  return index;
}

ProgramManifest ProgramManifest::from_json(const json::Value& value) {
  check_format(value);
  return ProgramManifest{read_facts(value.at("files"), "files")};
}

BundledOp BundledOp::from_text(std::string text) {
  BundledOp op;
  op.document = json::parse(text);
  op.text = std::move(text);
  const int64_t format = op.document.at("format").as_int("format");
  if (format == 2)
    read_definition(op.document, op);
  else if (format != 1)
    raise(ErrorKind::kInternal, "expected format 1 or 2, got ", format);
  op.identity = identity_of(op.op());
  if (const json::Value* aliases = op.document.find("aliases")) {
    for (const json::Value& name : aliases->as_array("aliases"))
      op.aliases.push_back(name.as_string("aliases"));
  }
  for (const json::Value& item : op.document.at("variants").as_array("variants")) {
    BundledVariant variant;
    variant.description = &item.at("variant");
    if (format == 2) variant.digest = read_digest(item.at("digest"), "variants.digest");
    for (const json::Value& entry : item.at("entries").as_array("entries")) {
      variant.entries.push_back(read_entry(entry));
      variant.entries.back().place =
          std::to_string(op.variants.size()) + "." + std::to_string(variant.entries.size());
    }
    op.variants.push_back(std::move(variant));
  }
  return op;
}

std::string BundledOp::difference(
    const std::vector<std::pair<std::string, std::string>>& other) const {
  std::string text;
  for (const auto& part : parts) {
    if (std::find(other.begin(), other.end(), part) == other.end())
      text += (text.empty() ? "" : ", ") + part.first;
  }
  return text.empty() ? "definition" : text;
}

Bundle Bundle::open(const std::string& path, const Trust& trust) {
  Bundle bundle(path, trust);
  for (const char* folder : {"", "/ops", "/programs"}) trust.require(path + folder);
  const std::string file = path + "/bundle.json", text = read_file(file, kTextLimit, trust);
  // Nothing holds the index's own digest: what is malformed was damaged after it was written.
  const BundleIndex index = naming(
      file + ": the bundle's index is damaged",
      [&] { return BundleIndex::from_json(json::parse(text)); }, ErrorKind::kArgument);
  for (const auto& op : index.ops) {
    const std::string folder = path + "/ops/" + op.first, op_file = folder + "/op.json";
    trust.require(folder);
    std::string op_text = read_verified(op_file, op.second, trust);
    bundle.ops_.push_back(
        naming(op_file, [&] { return BundledOp::from_text(std::move(op_text)); }));
    bundle.ops_.back().file = op_file;
  }
  return bundle;
}

EntrySpec::ImageMap Bundle::images(const BundledEntry& entry) const {
  const std::string folder = path_ + "/programs/" + entry.program + "/";
  const std::string manifest_file = folder + "manifest.json";
  trust_.require(path_ + "/programs/" + entry.program);
  const std::string text = read_verified(manifest_file, entry.manifest, trust_);
  const ProgramManifest manifest =
      naming(manifest_file, [&] { return ProgramManifest::from_json(json::parse(text)); });
  EntrySpec::ImageMap images;
  for (const auto& file : manifest.files) {
    // Files in folders below are for people; a launch's image is beside the manifest.
    if (file.first.find('/') != std::string::npos) continue;
    const std::string& name = checked_name(file.first);
    trust_.require(folder + name);
    images[name] =
        ImageSource{entry.program.substr(0, 12) + "/" + name, "", folder + name, file.second};
  }
  return images;
}

}  // namespace tileops
