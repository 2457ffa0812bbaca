// Guarded reads: plain files only, bounded, compared with what their writer noted.
#include "core/files.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/sha256.h"

namespace tileops {
namespace {

class Descriptor {
 public:
  // Without O_NONBLOCK the opening of a FIFO would wait for a writer.
  explicit Descriptor(const std::string& path)
      : number_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

[[noreturn]] void fail(const std::string& path, const char* what) {
  raise(ErrorKind::kArgument, path, ": ", what);
}

// Fills `entry` through one of getpwuid_r and getgrgid_r; false if there is no such entry.
template <class Get, class Id, class Record>
bool look_up(Get get, Id id, Record& entry, std::vector<char>& space) {
  Record* found = nullptr;
  space.resize(1024);
  int failure = 0;
  while ((failure = get(id, &entry, space.data(), space.size(), &found)) == ERANGE &&
         space.size() < (1u << 20))
    space.resize(space.size() * 2);
  return failure == 0 && found != nullptr;
}

// A group that has the name of the user and no other member, as some systems make for each user.
bool is_private_group(gid_t group_id, uid_t user_id) {
  struct passwd user = {};
  struct group group = {};
  std::vector<char> user_space, group_space;
  if (!look_up(getpwuid_r, user_id, user, user_space) || user.pw_gid != group_id) return false;
  if (!look_up(getgrgid_r, group_id, group, group_space)) return false;
  const std::string name = user.pw_name;
  if (name != group.gr_name) return false;
  for (char** member = group.gr_mem; *member != nullptr; ++member) {
    if (name != *member) return false;
  }
  return true;
}

}  // namespace

void Trust::require(const std::string& path, const struct stat& status) const {
  if (shared_) return;
  constexpr const char* kRemedy =
      ", and what it holds is code: trust=\"shared\" or TILEOPS_CACHE_TRUST_SHARED=1 allows it";
  const uid_t user = geteuid();
  if (status.st_uid != 0 && status.st_uid != user)
    raise(ErrorKind::kArgument, path, " belongs to another user (uid ", status.st_uid, ")",
          kRemedy);
  if ((status.st_mode & S_IWOTH) != 0)
    raise(ErrorKind::kArgument, path, " can be written by every user", kRemedy);
  if ((status.st_mode & S_IWGRP) != 0 && !is_private_group(status.st_gid, user))
    raise(ErrorKind::kArgument, path, " can be written by its group (gid ", status.st_gid, ")",
          kRemedy);
}

void Trust::require(const std::string& path) const {
  struct stat status = {};
  if (!shared_ && stat(path.c_str(), &status) == 0) require(path, status);
}

FileFact FileFact::from_json(const json::Value& value) {
  constexpr int64_t kMost = int64_t{1} << 40;
  FileFact fact;
  fact.size = static_cast<uint64_t>(value.at("size").as_int_in(0, kMost, "size"));
  fact.sha256 = value.at("sha256").as_string("sha256");
  if (fact.sha256.size() != 64 ||
      fact.sha256.find_first_not_of("0123456789abcdef") != std::string::npos)
    raise(ErrorKind::kInternal, "sha256: expected 64 hexadecimal digits");
  return fact;
}

std::string read_file(const std::string& path, uint64_t limit, const Trust& trust) {
  const Descriptor file(path);
  struct stat status = {};
  if (file.number() < 0 || fstat(file.number(), &status) != 0) fail(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(path, "expected a plain file");
  trust.require(path, status);
  if (static_cast<uint64_t>(status.st_size) > limit) {
    raise(ErrorKind::kArgument, path, ": expected at most ", limit, " bytes, got ", status.st_size);
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = read(file.number(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, std::strerror(errno));
    if (got == 0) fail(path, "became shorter while it was read");
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

std::string read_verified(const std::string& path, const FileFact& fact, const Trust& trust) {
  std::string bytes = read_file(path, fact.size, trust);
  if (bytes.size() != fact.size) {
    raise(ErrorKind::kArgument, path, ": expected ", fact.size, " bytes, got ", bytes.size(),
          ": the file is damaged");
  }
  const std::string found = sha256_hex(bytes);
  if (found != fact.sha256) {
    raise(ErrorKind::kArgument, path, ": expected the SHA-256 ", fact.sha256, ", got ", found,
          ": the file is damaged");
  }
  return bytes;
}

}  // namespace tileops
