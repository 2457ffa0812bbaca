// Owns guarded reads: plain files only, bounded, compared with what their writer noted.
#include "core/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

}  // namespace

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

std::string read_file(const std::string& path, uint64_t limit) {
  const Descriptor file(path);
  struct stat status = {};
  if (file.number() < 0 || fstat(file.number(), &status) != 0) fail(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(path, "expected a plain file");
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

std::string read_verified(const std::string& path, const FileFact& fact) {
  std::string bytes = read_file(path, fact.size);
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
