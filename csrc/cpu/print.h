// What T.print writes: one line a value, with the block that wrote it.
#ifndef TILEOPS_CPU_PRINT_H_
#define TILEOPS_CPU_PRINT_H_

#include "types.h"

extern "C" int printf(const char* format, ...);

namespace tileops {

TILEOPS_INLINE void print_message(const char* message, i64 block) {
  printf("%s: block %lld\n", message, static_cast<long long>(block));
}
TILEOPS_INLINE void print_value(const char* message, i64 block, const char* what, f64 value) {
  printf("%s: block %lld: %s = %.9g\n", message, static_cast<long long>(block), what, value);
}
TILEOPS_INLINE void print_value(const char* message, i64 block, const char* what, f32 value) {
  print_value(message, block, what, static_cast<f64>(value));
}
TILEOPS_INLINE void print_value(const char* message, i64 block, const char* what, bool value) {
  printf("%s: block %lld: %s = %s\n", message, static_cast<long long>(block), what,
         value ? "true" : "false");
}
TILEOPS_INLINE void print_value(const char* message, i64 block, const char* what, u64 value) {
  printf("%s: block %lld: %s = %llu\n", message, static_cast<long long>(block), what,
         static_cast<unsigned long long>(value));
}
template <class T>
TILEOPS_INLINE void print_value(const char* message, i64 block, const char* what, T value) {
  printf("%s: block %lld: %s = %lld\n", message, static_cast<long long>(block), what,
         static_cast<long long>(value));
}
template <class T>
TILEOPS_INLINE void print_element(const char* message, i64 block, const char* name, i64 at,
                                  T value) {
  char what[96];
  __builtin_snprintf(what, sizeof(what), "%s[%lld]", name, static_cast<long long>(at));
  print_value(message, block, what, value);
}

}  // namespace tileops

#endif  // TILEOPS_CPU_PRINT_H_
