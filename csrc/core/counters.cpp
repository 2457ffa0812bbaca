// Owns the list of counter blocks.
#include "core/counters.h"

#include <mutex>
#include <vector>

namespace tileops {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<CounterBlock*> live;
  std::vector<CounterBlock*>
      idle;  // of ended threads: counts stay, blocks are handed to new threads
};

Registry& registry() {
  static Registry* instance = new Registry();
  return *instance;
}

struct Lease {
  CounterBlock* block;
  ~Lease() {
    std::lock_guard<std::mutex> lock(registry().mutex);
    registry().idle.push_back(block);
  }
};

CounterBlock* acquire() {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.idle.empty()) {
    CounterBlock* block = all.idle.back();
    all.idle.pop_back();
    return block;
  }
  all.live.push_back(new CounterBlock());
  return all.live.back();
}

}  // namespace

CounterBlock* register_counter_block() {
  static thread_local Lease lease{acquire()};
  return lease.block;
}

int64_t counter_total(Counter which) {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  int64_t total = 0;
  for (CounterBlock* block : all.live)
    total += block->values[static_cast<int>(which)].load(std::memory_order_relaxed);
  return total;
}

}  // namespace tileops
