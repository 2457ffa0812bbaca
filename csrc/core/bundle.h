// The reader of bundles: folders of ops with their compiled programs, made ahead of time.
//
//   bundle.json                  format; size and SHA-256 of each op.json
//   ops/<folder>/op.json         the op, its variants, and for each entry the hash of its program;
//                                from format 2 on digests that tell the op's program from another
//   programs/<hash>/manifest.json  size and SHA-256 of each file of the program
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "core/spec.h"

namespace tileops {

// bundle.json: the folders below ops/.
struct BundleIndex {
  std::vector<std::pair<std::string, FileFact>> ops;

  // InternalError for a malformed index, and for a name that could lead out of the bundle.
  static BundleIndex from_json(const json::Value& value);
};

// manifest.json of a program: what its files must be.
struct ProgramManifest {
  std::vector<std::pair<std::string, FileFact>> files;

  static ProgramManifest from_json(const json::Value& value);
};

// One compiled specialisation in op.json.
struct BundledEntry {
  std::string target;                        // "cpu:x86-64-v3", "cuda:sm_90a"
  std::string program;                       // hash: the folder below programs/
  std::string place;                         // numbers of its variant and among that one's entries
  FileFact manifest;                         // of programs/<hash>/manifest.json
  const json::Value* description = nullptr;  // what EntrySpec reads
};

struct BundledVariant {
  const json::Value* description = nullptr;  // what VariantSpec reads
  std::string digest;  // of the program with symbolic sizes; empty in format 1
  std::vector<BundledEntry> entries;
};

// op.json. The descriptions point into `document`.
struct BundledOp {
  std::string file;  // where it was read, for messages
  std::string text;
  json::Value document;
  std::string identity;    // the op's own part, as text
  std::string definition;  // digest of the program as it was written; empty in format 1
  std::vector<std::pair<std::string, std::string>>
      parts;                         // digests of what `definition` is made of
  std::vector<std::string> aliases;  // further names of the op, such as the twin without gradient
  std::vector<BundledVariant> variants;

  BundledOp() = default;
  BundledOp(BundledOp&&) = default;
  BundledOp& operator=(BundledOp&&) = default;
  const json::Value& op() const { return document.at("op"); }
  // How the program differs from one with another definition, in words.
  std::string difference(const std::vector<std::pair<std::string, std::string>>& other) const;

  static BundledOp from_text(std::string text);
};

// A bundle on disk. Nothing of a program but its manifest is read here.
class Bundle {
 public:
  // Reads the index and every op.json, each compared with its size and digest. ArgumentError naming
  // the file where one is missing or damaged, InternalError naming it where one is malformed though
  // it is what its writer wrote. Every file and folder must be one that `trust` takes.
  static Bundle open(const std::string& path, const Trust& trust);

  const std::string& path() const { return path_; }
  const std::vector<BundledOp>& ops() const { return ops_; }

  // The images of a program, which are verified when they are loaded.
  EntrySpec::ImageMap images(const BundledEntry& entry) const;

 private:
  Bundle(std::string path, const Trust& trust) : path_(std::move(path)), trust_(trust) {}

  std::string path_;
  Trust trust_;
  std::vector<BundledOp> ops_;
};

}  // namespace tileops
