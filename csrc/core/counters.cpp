// The list of counter blocks.
#include "core/counters.h"

#include <mutex>
#include <vector>

#include "core/forks.h"

namespace tileops {
namespace {

struct Registry {
  Mutex mutex;
  std::vector<CounterBlock*> live;
  std::vector<CounterBlock*>
      idle;  // of ended threads: counts stay, blocks are handed to new threads
};

Lasting<Registry> made;

Registry& registry() {
  return made.get();
}

struct Lease {
  CounterBlock* block;
  ~Lease() {
    std::lock_guard<Mutex> lock(registry().mutex);
    registry().idle.push_back(block);
  }
};

CounterBlock* acquire() {
  Registry& all = registry();
  std::lock_guard<Mutex> lock(all.mutex);
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
  std::lock_guard<Mutex> lock(all.mutex);
  int64_t total = 0;
  for (CounterBlock* block : all.live)
    total += block->values[static_cast<int>(which)].load(std::memory_order_relaxed);
  return total;
}

}  // namespace tileops
