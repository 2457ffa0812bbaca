// The mutex of this library, which no forked child finds in the hands of a thread that is gone, and
// what a child renews.
//
// A fork copies memory and one thread. What the other threads were in the middle of stays half done
// for ever, and what they had locked stays locked. So a fork waits until no other thread holds a
// Mutex, and no thread gets one until the fork is over: data under a Mutex is whole in the child,
// and free. There is one gate for all, so the order in which threads take several does not matter
// to a fork.
//
// Three rules make that safe; tests/architecture/test_locks.py and the hooks check them:
// - Everything shared that is more than one atomic word is under a Mutex. There is no std::mutex,
//   no condition variable, and no local static with an initialiser that runs (Lasting is for
//   those).
// - Nobody waits for the interpreter's lock while holding a Mutex: the forking thread has that lock
//   while it waits here. The other way round is allowed. Hence a scope that lets the interpreter's
//   lock go encloses the one that holds a Mutex.
// - Nobody waits for another call, for a resolver or for a kernel while holding a Mutex.
// Where several are held, the order is: bundles, registration, an op's own, an op's tables, a table
// of dispatch, a CUDA kernel, an image, the driver, counters.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "core/error.h"

namespace tileops {

// Satisfies the standard's BasicLockable: held through std::lock_guard. Not recursive.
class Mutex {
 public:
  constexpr Mutex() noexcept = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // InternalError in a child whose fork waited in vain for the thread that holds it.
  void lock();
  void unlock();
  // Lets go, waits until some thread calls announce_change, and locks again. Other Mutexes that
  // this thread holds stay held, and no fork can happen: so it should hold none.
  void wait();

 private:
  void take();

  std::mutex inner_;
  std::atomic<uint32_t> held_since_{
      0};  // the count of forks when it was locked; 0 while it is free
  std::atomic<pthread_t> holder_{};
};

// Wakes every thread in Mutex::wait. Called with or without the Mutex.
void announce_change();

// A scope that a fork waits for, for work that another library does not let forks interrupt.
class NoForkScope {
 public:
  NoForkScope();
  ~NoForkScope();
  NoForkScope(const NoForkScope&) = delete;
  NoForkScope& operator=(const NoForkScope&) = delete;
};

// Whether this thread holds a Mutex, or is in a NoForkScope.
bool is_holding_mutex();

// Runs `renew` in every child from now on, before it can do anything else; the child has one
// thread.
void renew_in_child(void (*renew)());

// Whether this process is a forked child. Threads of pools do not exist in it.
bool is_forked_child();

// One object of the process, made at the first use and never destroyed: calls may come while the
// process ends. Not a local static: a thread that is gone would be making it for ever.
template <class T>
class Lasting {
 public:
  constexpr Lasting() noexcept = default;
  T& get() {
    T* found = made_.load(std::memory_order_acquire);
    return __builtin_expect(found != nullptr, 1) ? *found : make();
  }

 private:
  __attribute__((cold, noinline)) T& make() {
    std::lock_guard<Mutex> lock(mutex_);
    T* found = made_.load(std::memory_order_acquire);
    if (found == nullptr) {
      found = new T();
      made_.store(found, std::memory_order_release);
    }
    return *found;
  }

  Mutex mutex_;
  std::atomic<T*> made_{nullptr};
};

}  // namespace tileops
