// Owns the one table of host hooks, and what Python announces to it.
#include "core/hooks.h"

#include <utility>

namespace tileops {
namespace {

__attribute__((tls_model("initial-exec"))) thread_local void* announced = nullptr;

}  // namespace

Hooks& hooks() {
  static Hooks table;
  return table;
}

void announce_python_call(void* thread_state) {
  announced = thread_state;
}

void* take_python_call() {
  return std::exchange(announced, nullptr);
}

}  // namespace tileops
