// The clock of a call's stages: where host time goes, for measurements.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/error.h"

namespace tileops {

enum class Stage : int {
  kRead,      // the arguments: unboxed, and each tensor asked for its facts
  kLookUp,    // checks, sizes, the kernel's place in the tables
  kAllocate,  // outputs
  kLaunch,    // parameters, workspaces, the stream, and kKernel
  kKernel,    // within kLaunch: the driver's call, or the kernel itself on a CPU
  kFree,      // what was handed over with the call
};
inline constexpr int kStages = 6;

extern std::atomic<bool> stage_clock_on;

// Starts or stops the clock, and forgets what it has counted.
TILEOPS_API void set_stage_clock(bool on);
// Nanoseconds since the clock was started, over all threads.
TILEOPS_API int64_t stage_total(Stage stage);
void add_stage(Stage stage, std::chrono::steady_clock::time_point since);

// Ends one stage after the other; reads no clock unless it was started.
class StageClock {
 public:
  StageClock() : on_(stage_clock_on.load(std::memory_order_relaxed)) {
    if (__builtin_expect(on_, 0)) since_ = std::chrono::steady_clock::now();
  }
  void end(Stage stage) {
    if (__builtin_expect(!on_, 1)) return;
    add_stage(stage, since_);
    since_ = std::chrono::steady_clock::now();
  }

 private:
  const bool on_;
  std::chrono::steady_clock::time_point since_;
};

}  // namespace tileops
