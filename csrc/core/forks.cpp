// The gate that all Mutexes share with forks, and the handlers of a fork.
#include "core/forks.h"

#include <cerrno>
#include <ctime>

namespace tileops {
namespace {

// A thread that holds a Mutex may be waiting for a disk or a driver that does not answer. A fork
// that has waited this long goes on, and what is still held is an error in the child.
constexpr time_t kLongestWait = 10;  // seconds
constexpr std::size_t kMostRenewals = 8;

// Under `mutex`, which the forking thread holds across the fork; a child makes both anew.
struct Gate {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  int64_t threads = 0;   // that hold a Mutex
  int64_t forks = 0;     // that wait for them
  uint64_t changes = 0;  // that were announced
};

Gate gate;
// 1 in the first process, then one more in each child. Never 0.
std::atomic<uint32_t> generation{1};
std::atomic<bool> has_left_behind{false};  // this child's fork did not wait for all
std::atomic<pthread_t> forked_by{};
std::atomic<void (*)()> renewals[kMostRenewals] = {};

__thread int64_t held __attribute__((tls_model("initial-exec"))) = 0;

class GateLock {
 public:
  GateLock() { pthread_mutex_lock(&gate.mutex); }
  ~GateLock() { pthread_mutex_unlock(&gate.mutex); }
  GateLock(const GateLock&) = delete;
  GateLock& operator=(const GateLock&) = delete;
};

void wait_for_change() {
  pthread_cond_wait(&gate.changed, &gate.mutex);
}

// Under the gate's mutex.
void pass_in() {
  while (gate.forks != 0) wait_for_change();
  ++gate.threads;
}

void pass_out() {
  --gate.threads;
  if (gate.forks != 0) pthread_cond_broadcast(&gate.changed);
}

void enter() {
  if (held == 0) {
    const GateLock lock;
    pass_in();
  }
  ++held;
}

void leave() {
  if (--held != 0) return;
  const GateLock lock;
  pass_out();
}

int64_t own_share() {
  return held != 0 ? 1 : 0;
}

void before_fork() {
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kLongestWait;
  pthread_mutex_lock(&gate.mutex);
  ++gate.forks;
  // A fork inside a Mutex, such as the driver's own of a helper program, waits for the others only.
  while (gate.threads > own_share() &&
         pthread_cond_timedwait(&gate.changed, &gate.mutex, &until) != ETIMEDOUT) {
  }
}

void after_fork_in_parent() {
  if (--gate.forks == 0) pthread_cond_broadcast(&gate.changed);
  pthread_mutex_unlock(&gate.mutex);
}

void after_fork_in_child() {
  if (gate.threads > own_share()) has_left_behind.store(true, std::memory_order_relaxed);
  const uint64_t changes = gate.changes;
  gate = Gate();
  gate.changes = changes;
  gate.threads = own_share();
  forked_by.store(pthread_self(), std::memory_order_relaxed);
  generation.fetch_add(1, std::memory_order_relaxed);
  for (const auto& renewal : renewals) {
    if (const auto renew = renewal.load(std::memory_order_acquire)) renew();
  }
}

// Fails for want of memory only, and the library is just being loaded.
__attribute__((constructor)) void follow_forks() {
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

}  // namespace

void Mutex::take() {
  if (!inner_.try_lock()) {
    const uint32_t since = held_since_.load(std::memory_order_relaxed);
    if (has_left_behind.load(std::memory_order_relaxed) && since != 0 &&
        since != generation.load(std::memory_order_relaxed) &&
        pthread_equal(holder_.load(std::memory_order_relaxed),
                      forked_by.load(std::memory_order_relaxed)) == 0) {
      raise(ErrorKind::kInternal,
            "this process was forked while another thread of its parent was loading or registering "
            "an op, for longer than a fork waits; run such a first call before the fork, or start "
            "the process with the 'spawn' or 'forkserver' method");
    }
    inner_.lock();
  }
  holder_.store(pthread_self(), std::memory_order_relaxed);
  held_since_.store(generation.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void Mutex::lock() {
  enter();
  try {
    take();
  } catch (...) {
    leave();
    throw;
  }
}

void Mutex::unlock() {
  held_since_.store(0, std::memory_order_relaxed);
  inner_.unlock();
  leave();
}

void Mutex::wait() {
  {
    // A thread that announces needs the gate's mutex: from here on nothing is missed.
    const GateLock lock;
    const uint64_t seen = gate.changes;
    held_since_.store(0, std::memory_order_relaxed);
    inner_.unlock();
    if (held == 1) pass_out();
    while (gate.changes == seen) wait_for_change();
    if (held == 1) pass_in();
  }
  take();
}

void announce_change() {
  const GateLock lock;
  ++gate.changes;
  pthread_cond_broadcast(&gate.changed);
}

NoForkScope::NoForkScope() {
  enter();
}

NoForkScope::~NoForkScope() {
  leave();
}

bool is_holding_mutex() {
  return held != 0;
}

void renew_in_child(void (*renew)()) {
  for (auto& renewal : renewals) {
    void (*free)() = nullptr;
    if (renewal.compare_exchange_strong(free, renew, std::memory_order_acq_rel) || free == renew)
      return;
  }
  raise(ErrorKind::kInternal, "more than ", kMostRenewals, " kinds of renewal in a child");
}

bool is_forked_child() {
  return generation.load(std::memory_order_relaxed) != 1;
}

}  // namespace tileops
