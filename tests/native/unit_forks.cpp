// Tests of the mutex that forks wait for.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "check.h"
#include "core/forks.h"
#include "core/hooks.h"

using namespace tileops;

namespace {

Mutex mutex, other;
int first = 0, second = 0;  // under the mutex, always equal

void pause_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// The exit status of a child that runs `body`, or -1 if it is still there after a minute.
template <class Body>
int status_of_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  for (int i = 0; i < 6000; ++i, pause_ms(10)) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return -1;
}

}  // namespace

TEST(a_fork_waits_for_whoever_is_inside) {
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop) {
      std::lock_guard<Mutex> outer(mutex);
      ++first;
      std::lock_guard<Mutex> inner(other);  // in the gate already: goes in though a fork waits
      ++second;
    }
  });
  for (int i = 0; i < 200; ++i) {
    CHECK(status_of_child([] {
            std::lock_guard<Mutex> outer(mutex);
            std::lock_guard<Mutex> inner(other);
            return first == second ? 0 : 1;
          }) == 0);
  }
  stop = true;
  writer.join();
  CHECK(first > 0);
}

TEST(threads_may_fork_at_once) {
  std::atomic<int> wrong{0};
  std::thread threads[4];
  for (std::thread& each : threads) {
    each = std::thread([&] {
      for (int i = 0; i < 25; ++i) {
        {
          std::lock_guard<Mutex> lock(mutex);
        }
        if (status_of_child([] { return std::lock_guard<Mutex>(mutex), 0; }) != 0) ++wrong;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  CHECK(wrong == 0);
}

TEST(a_fork_inside_keeps_what_its_own_thread_holds) {
  std::lock_guard<Mutex> lock(mutex);
  CHECK(status_of_child([] {
          mutex.unlock();
          std::lock_guard<Mutex> again(mutex);
          mutex.unlock();
          mutex.lock();
          return is_holding_mutex() ? 0 : 1;
        }) == 0);
}

TEST(a_waiting_thread_does_not_keep_a_fork) {
  bool is_ready = false, has_waited = false;
  std::thread waiter([&] {
    std::lock_guard<Mutex> lock(mutex);
    has_waited = true;
    while (!is_ready) mutex.wait();
  });
  for (bool seen = false; !seen; pause_ms(1)) {
    std::lock_guard<Mutex> lock(mutex);
    seen = has_waited;
  }
  const auto start = std::chrono::steady_clock::now();
  CHECK(status_of_child([&] {
          std::lock_guard<Mutex> lock(mutex);
          announce_change();
          return 0;
        }) == 0);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  {
    std::lock_guard<Mutex> lock(mutex);
    is_ready = true;
  }
  announce_change();
  waiter.join();
}

TEST(what_a_fork_waited_for_in_vain_is_an_error_in_the_child) {
  std::atomic<bool> stop{false}, is_in{false};
  std::thread holder([&] {
    std::lock_guard<Mutex> lock(mutex);
    is_in = true;
    while (!stop) pause_ms(1);
  });
  while (!is_in) pause_ms(1);
  const int status = status_of_child([] {
    {
      std::lock_guard<Mutex> lock(other);
    }  // nobody's
    return check::error_of([] { std::lock_guard<Mutex> lock(mutex); }).find("was forked while") == 0
               ? 1
           : check::error_of([] { std::lock_guard<Mutex> lock(mutex); }).empty() ? 2
                                                                                 : 0;
  });
  stop = true;
  holder.join();
  CHECK(status == 0);
  std::lock_guard<Mutex> lock(mutex);  // the parent's is as it was
}

TEST(a_child_is_told_what_to_renew) {
  static int renewed = 0;
  renew_in_child([] { ++renewed; });
  CHECK(!is_forked_child());
  CHECK(status_of_child([] { return renewed == 1 && is_forked_child() ? 0 : 1; }) == 0);
  CHECK(renewed == 0);
}

TEST(the_interpreters_lock_is_not_let_go_under_a_mutex) {
  static int restored = 0;
  static int token = 0;
  const Hooks before = hooks();
  hooks().gil_release = [] { return static_cast<void*>(&token); };
  hooks().gil_restore = [](void* given) { restored += given == &token ? 1 : 0; };
  {
    const GilReleaseScope fine;
  }
  CHECK(restored == 1);
  {
    std::lock_guard<Mutex> lock(mutex);
    CHECK_ERROR("may not be let go", GilReleaseScope());
    CHECK(restored == 2);  // it was given back
  }
  hooks() = before;
}
