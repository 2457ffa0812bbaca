// What T.print writes: one line a value, with the block that wrote it.
#ifndef TILEOPS_CUDA_PRINT_H_
#define TILEOPS_CUDA_PRINT_H_

#include "types.h"

namespace tileops {

TILEOPS_INLINE void print_message(const char* message, i64 block) {
  printf("%s: block %lld\n", message, block);
}
TILEOPS_INLINE void print_value(const char* message, i64 block, const char* what, f64 value) {
  printf("%s: block %lld: %s = %.9g\n", message, block, what, value);
}
TILEOPS_INLINE void print_value(const char* message, i64 block, const char* what, f32 value) {
  print_value(message, block, what, static_cast<f64>(value));
}
TILEOPS_INLINE void print_value(const char* message, i64 block, const char* what, bool value) {
  printf("%s: block %lld: %s = %s\n", message, block, what, value ? "true" : "false");
}
TILEOPS_INLINE void print_value(const char* message, i64 block, const char* what, u64 value) {
  printf("%s: block %lld: %s = %llu\n", message, block, what, value);
}
template <class T>
TILEOPS_INLINE void print_value(const char* message, i64 block, const char* what, T value) {
  printf("%s: block %lld: %s = %lld\n", message, block, what, static_cast<i64>(value));
}

}  // namespace tileops

#endif  // TILEOPS_CUDA_PRINT_H_
