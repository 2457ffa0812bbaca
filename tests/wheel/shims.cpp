// What csrc/oldest defines in place of newer libraries, used as compilers use it. Prints a line for each part.
#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <new>
#include <string>
#include <vector>

namespace {

int alive = 0;

struct Counted {
  Counted() { ++alive; }
  Counted(const Counted&) { ++alive; }
  ~Counted() { --alive; }
};

bool travels() {
  for (int i = 0; i < 100000; ++i) {
    std::exception_ptr first;
    try {
      throw Counted();
    } catch (...) {
      first = std::current_exception();
    }
    std::vector<std::exception_ptr> copies(3, first);
    std::exception_ptr moved = std::move(copies.back());
    copies.clear();
    first = nullptr;
    if (alive != 1) return false;
    try {
      std::rethrow_exception(moved);
    } catch (const Counted&) {
    }
    moved = nullptr;
    if (alive != 0) return false;
  }
  return true;
}

bool refuses_length(volatile long count) {
  try {
    delete[] new int[static_cast<std::size_t>(count)];
    return false;
  } catch (const std::bad_array_new_length&) {
    return true;
  }
}

}  // namespace

int main(int, char** argv) {
  struct stat by_path = {}, by_file = {};
  const int file = open(argv[1], O_RDONLY);
  const bool found = stat(argv[1], &by_path) == 0 && fstat(file, &by_file) == 0;
  std::printf("exceptions %d\n", travels());
  std::printf("length %d\n", refuses_length(-1));
  std::printf("size %lld %lld\n", found ? (long long)by_path.st_size : -1, (long long)by_file.st_size);
  std::printf("missing %d\n", stat("/nowhere/at/all", &by_path));
  std::printf("symbol %d\n", dlsym(dlopen(nullptr, RTLD_NOW), "printf") != nullptr);
  return 0;
}
