// The event counters: one block a thread, so that counting on the call path shares no cache
// line.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/error.h"

namespace tileops {

enum class Counter : int {
  kLaunches = 0,
  kLoads = 1,
  kMemoryHits = 2,
  kResolves = 3,
  kLoadNanoseconds = 4,
  kJits = 5,  // loads of PTX, which the driver compiles
  kJitNanoseconds = 6
};
inline constexpr int kCounters = 7;

struct CounterBlock {
  std::atomic<int64_t> values[kCounters] = {};
};

CounterBlock* register_counter_block();

// Only the owning thread writes its block: a plain load and store is enough.
inline void count(Counter which, int64_t amount = 1) {
  // Initial-exec: an access without a call, at eight bytes of the room that loaders keep for it.
  __attribute__((tls_model("initial-exec"))) static thread_local CounterBlock* block = nullptr;
  if (__builtin_expect(block == nullptr, 0)) block = register_counter_block();
  std::atomic<int64_t>& value = block->values[static_cast<int>(which)];
  value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

// Counts the nanoseconds from its construction on.
class CountedTime {
 public:
  explicit CountedTime(Counter which) : which_(which) {}
  ~CountedTime() {
    const auto spent = std::chrono::steady_clock::now() - start_;
    count(which_, std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count());
  }
  CountedTime(const CountedTime&) = delete;
  CountedTime& operator=(const CountedTime&) = delete;

 private:
  Counter which_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The sum over all threads, ended ones included.
TILEOPS_API int64_t counter_total(Counter which);

}  // namespace tileops
