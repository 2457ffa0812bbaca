// The one table of host hooks, and what Python announces to it.
#include "core/hooks.h"

#include <utility>

namespace tileops {
namespace {

__attribute__((tls_model("initial-exec"))) thread_local void* announced = nullptr;
Hooks table;  // constant-initialised

}  // namespace

Hooks& hooks() {
  return table;
}

void refuse_under_mutex(void* token) {
  hooks().gil_restore(token);
  raise(ErrorKind::kInternal,
        "the interpreter's lock may not be let go under a lock of the runtime");
}

void announce_python_call(void* thread_state) {
  announced = thread_state;
}

void* take_python_call() {
  return std::exchange(announced, nullptr);
}

}  // namespace tileops
