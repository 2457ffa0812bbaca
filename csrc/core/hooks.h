// Owns the function pointers through which a host (Python's binding, torch's threads) reaches into
// the runtime.
#pragma once

#include <cstdint>

#include "core/error.h"

namespace tileops {

using ParallelBody = void (*)(int64_t begin, int64_t end, void* context);

struct Hooks {
  // Releases the interpreter's lock if this thread holds it and returns a token for gil_restore;
  // null if not held.
  void* (*gil_release)() = nullptr;
  void (*gil_restore)(void* token) = nullptr;
  // Throws the host language's exception for an error. It must not return.
  void (*raise)(ErrorKind kind, const char* message) = nullptr;
  // Runs body over disjoint ranges that cover [0, count), on several threads where that pays.
  void (*parallel_for)(int64_t count, ParallelBody body, void* context) = nullptr;
  int (*thread_count)() = nullptr;
};

// Set once each, before the first call that needs them; read without a lock.
TILEOPS_API Hooks& hooks();

// Releases the interpreter's lock for a scope, around work that can block.
class GilReleaseScope {
 public:
  GilReleaseScope() : token_(hooks().gil_release == nullptr ? nullptr : hooks().gil_release()) {}
  ~GilReleaseScope() {
    if (token_ != nullptr) hooks().gil_restore(token_);
  }
  GilReleaseScope(const GilReleaseScope&) = delete;
  GilReleaseScope& operator=(const GilReleaseScope&) = delete;

 private:
  void* token_;
};

}  // namespace tileops
