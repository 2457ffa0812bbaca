// What glibc 2.28 lacks and a newer one's headers ask for. The definitions are this binary's alone.
#include "oldest/libc.h"

#ifdef TILEOPS_OLDEST_GLIBC

#define TILEOPS_OWN extern "C" __attribute__((visibility("hidden")))

// glibc 2.32: true where no thread was ever started, so that libstdc++ may count without atomic
// instructions. A process with torch has threads.
TILEOPS_OWN char tileops_single_threaded __asm__("__libc_single_threaded");
char tileops_single_threaded = 0;

// glibc 2.33: until then functions of headers that named the layout of `struct stat`.
struct stat;
extern "C" int tileops_xstat(int layout, const char* path, struct stat* out) noexcept
    __asm__("__xstat");
extern "C" int tileops_fxstat(int layout, int file, struct stat* out) noexcept __asm__("__fxstat");

namespace {
#ifdef __x86_64__
constexpr int kLayout = 1;
#else
constexpr int kLayout = 0;
#endif
}  // namespace

TILEOPS_OWN int tileops_stat(const char* path, struct stat* out) noexcept __asm__("stat");
int tileops_stat(const char* path, struct stat* out) noexcept {
  return tileops_xstat(kLayout, path, out);
}

TILEOPS_OWN int tileops_fstat(int file, struct stat* out) noexcept __asm__("fstat");
int tileops_fstat(int file, struct stat* out) noexcept {
  return tileops_fxstat(kLayout, file, out);
}

#endif
