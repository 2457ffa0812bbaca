// The function pointers through which a host (Python's binding, torch's threads) reaches into
// the runtime.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/forks.h"

namespace tileops {

using ParallelBody = void (*)(int64_t begin, int64_t end, void* context);

struct Hooks {
  // Releases the interpreter's lock if this thread holds it and returns a token for gil_restore;
  // null if not held.
  void* (*gil_release)() = nullptr;
  void (*gil_restore)(void* token) = nullptr;
  // Takes the interpreter's lock for `thread_state`, which is this thread's; false if it is held.
  bool (*gil_take)(void* thread_state) = nullptr;
  void (*gil_give_back)() = nullptr;
  // Writes a line of a topic to the log.
  void (*note)(const char* topic, const char* line) = nullptr;
  // Throws the host language's exception for an error. It must not return.
  void (*raise)(ErrorKind kind, const char* message) = nullptr;
  // Runs body over disjoint ranges that cover [0, count), on several threads where that pays.
  void (*parallel_for)(int64_t count, ParallelBody body, void* context) = nullptr;
  int (*thread_count)() = nullptr;
};

// Set once each, before the first call that needs them; read without a lock.
TILEOPS_API Hooks& hooks();

// Writes a line to the host's log; without one to stderr, if TILEOPS_LOG names the topic or "all".
// Not under a Mutex.
void write_note(const std::string& topic, const std::string& line);

// Gives the interpreter's lock back and raises InternalError: it would be taken again under a
// Mutex.
[[noreturn]] void refuse_under_mutex(void* token);

// Releases the interpreter's lock for a scope, around work that can block and around a Mutex.
class GilReleaseScope {
 public:
  GilReleaseScope() : token_(hooks().gil_release == nullptr ? nullptr : hooks().gil_release()) {
    if (__builtin_expect(token_ != nullptr && is_holding_mutex(), 0)) refuse_under_mutex(token_);
  }
  ~GilReleaseScope() {
    if (token_ != nullptr) hooks().gil_restore(token_);
  }
  GilReleaseScope(const GilReleaseScope&) = delete;
  GilReleaseScope& operator=(const GilReleaseScope&) = delete;

 private:
  void* token_;
};

// Takes the interpreter's lock for a scope, where `thread_state` is not null.
class GilTakeScope {
 public:
  explicit GilTakeScope(void* thread_state)
      : taken_(thread_state != nullptr && hooks().gil_take(thread_state)) {}
  ~GilTakeScope() {
    if (taken_) hooks().gil_give_back();
  }
  GilTakeScope(const GilTakeScope&) = delete;
  GilTakeScope& operator=(const GilTakeScope&) = delete;

 private:
  const bool taken_;
};

// Says that this thread's next call of an op comes from Python code, with its thread state; null
// takes it back. A tensor whose last other owner is its Python object needs the lock to be let go:
// torch then takes it once for each, such a call once for all.
TILEOPS_API void announce_python_call(void* thread_state);
// What was announced, for the call that it was meant for.
void* take_python_call();

}  // namespace tileops
