// Owns reading files whose size and digest are known beforehand.
#pragma once

#include <cstdint>
#include <string>

#include "core/json.h"

namespace tileops {

// What a file must be: its size in bytes and its SHA-256 in hexadecimal digits.
struct FileFact {
  uint64_t size = 0;
  std::string sha256;

  // Reads {"size": ..., "sha256": ...}; InternalError for anything else.
  static FileFact from_json(const json::Value& value);
};

// The whole content of a plain file of at most `limit` bytes. ArgumentError naming the path where
// it cannot be read or is larger.
std::string read_file(const std::string& path, uint64_t limit);

// The content of a file, returned only where size and digest are those of `fact`; else
// ArgumentError naming the file, what was expected and what is there.
std::string read_verified(const std::string& path, const FileFact& fact);

}  // namespace tileops
