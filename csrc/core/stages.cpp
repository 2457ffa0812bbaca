// The sums of the clock of stages.
#include "core/stages.h"

namespace tileops {
namespace {

std::atomic<int64_t> totals[kStages] = {};
std::atomic<int64_t> reading_ns{0};  // what reading the clock adds to a stage

int64_t nanoseconds_since(std::chrono::steady_clock::time_point since) {
  const auto spent = std::chrono::steady_clock::now() - since;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
}

int64_t measure_reading() {
  int64_t least = INT64_MAX;
  for (int i = 0; i < 1000; ++i) {
    const int64_t spent = nanoseconds_since(std::chrono::steady_clock::now());
    if (spent < least) least = spent;
  }
  return least;
}

}  // namespace

std::atomic<bool> stage_clock_on{false};

void set_stage_clock(bool on) {
  if (on) reading_ns.store(measure_reading(), std::memory_order_relaxed);
  stage_clock_on.store(on, std::memory_order_relaxed);
  for (auto& total : totals) total.store(0, std::memory_order_relaxed);
}

int64_t stage_total(Stage stage) {
  return totals[static_cast<int>(stage)].load(std::memory_order_relaxed);
}

void add_stage(Stage stage, std::chrono::steady_clock::time_point since) {
  const int64_t spent = nanoseconds_since(since) - reading_ns.load(std::memory_order_relaxed);
  totals[static_cast<int>(stage)].fetch_add(spent, std::memory_order_relaxed);
}

}  // namespace tileops
