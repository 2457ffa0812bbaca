// Reading of files whose size and digest are known beforehand.
#pragma once

#include <sys/stat.h>

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

// Who may have written what will run as code: this user and root. Write permission for others is
// refused, and for a group that is not this user's private one. Python's cache has the same rule.
class Trust {
 public:
  // `shared`: anybody may have written it, as with a library.
  explicit Trust(bool shared) : shared_(shared) {}

  // ArgumentError naming the path and the user, group or permission that is refused.
  void require(const std::string& path, const struct stat& status) const;
  // The same for the file at `path`, links followed; nothing if there is none.
  void require(const std::string& path) const;

 private:
  bool shared_;
};

// The whole content of a plain file of at most `limit` bytes. ArgumentError naming the path where
// it cannot be read or is larger, or `trust` refuses it.
std::string read_file(const std::string& path, uint64_t limit, const Trust& trust = Trust(true));

// The content of a file, returned only where size and digest are those of `fact`; else
// ArgumentError naming the file, what was expected and what is there.
std::string read_verified(const std::string& path, const FileFact& fact,
                          const Trust& trust = Trust(true));

}  // namespace tileops
