// The one table of host hooks, and what Python announces to it.
#include "core/hooks.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tileops {
namespace {

// True if a list of words, separated by commas or blanks, has `word`.
bool lists(const std::string& text, const std::string& word) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = text.find_first_of(", \t\n", at);
    if (text.compare(at, (end == std::string::npos ? text.size() : end) - at, word) == 0)
      return true;
    if (end == std::string::npos) break;
    at = end + 1;
  }
  return false;
}

__attribute__((tls_model("initial-exec"))) thread_local void* announced = nullptr;
Hooks table;  // constant-initialised

}  // namespace

Hooks& hooks() {
  return table;
}

void write_note(const std::string& topic, const std::string& line) {
  if (hooks().note != nullptr) return hooks().note(topic.c_str(), line.c_str());
  const char* topics = std::getenv("TILEOPS_LOG");
  if (topics == nullptr || !(lists(topics, topic) || lists(topics, "all"))) return;
  std::fprintf(stderr, "tileops: %s\n", line.c_str());
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
