// CPU launches: the loop over blocks, threads' scratch memory, and what a failed check
// becomes.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>

#include "core/counters.h"
#include "core/error.h"
#include "core/hooks.h"
#include "core/launch.h"
#include "core/stages.h"

namespace tileops {
namespace {

// Scratch of the calling thread, kept between calls; null if there is no memory for it.
char* thread_scratch(uint64_t bytes) {
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  static thread_local std::unique_ptr<char, Free> arena;
  static thread_local uint64_t capacity = 0;
  if (bytes > capacity) {
    constexpr uint64_t kAlignment = 64;
    const uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    arena.reset();
    capacity = 0;
    arena.reset(static_cast<char*>(std::aligned_alloc(kAlignment, rounded)));
    if (arena == nullptr) return nullptr;
    capacity = rounded;
  }
  return arena.get();
}

struct Job {
  TileopsCpuEntry function;
  const TileopsValue* params;
  uint64_t scratch_bytes;
  int64_t blocks, chunk;
  std::atomic<int64_t> next{0};
  std::atomic<int> failed{0};  // set by the first thread whose check failed
  TileopsStatus status{};
  bool out_of_memory = false;
};

// Takes chunks until none is left: blocks differ in cost (a causal mask), so a fixed split would
// leave threads idle. Nothing may be thrown through the caller's thread pool.
void run_chunks(int64_t, int64_t, void* context) {
  Job& job = *static_cast<Job*>(context);
  char* scratch = job.scratch_bytes == 0 ? nullptr : thread_scratch(job.scratch_bytes);
  if (scratch == nullptr && job.scratch_bytes != 0) {
    if (job.failed.exchange(1) == 0) job.out_of_memory = true;
    return;
  }
  while (job.failed.load(std::memory_order_relaxed) == 0) {
    const int64_t first = job.next.fetch_add(job.chunk, std::memory_order_relaxed);
    if (first >= job.blocks) return;
    TileopsStatus status{0, -1, 0, 0};
    const int64_t last = std::min(first + job.chunk, job.blocks);
    if (job.function(job.params, first, last, scratch, &status) != 0 &&
        job.failed.exchange(1) == 0) {
      job.status = status;
    }
  }
}

[[noreturn]] __attribute__((cold)) void raise_status(const TileopsStatus& status,
                                                     const LaunchSpec& launch,
                                                     const EntrySpec& entry) {
  std::string where = launch.label;
  const auto report = entry.reports.find(status.statement);
  if (report != entry.reports.end() &&
      (status.code == TILEOPS_INDEX || status.code == TILEOPS_ASSERT)) {
    raise(ErrorKind::kArgument, where, ": ", report->second.text(status.value));
  }
  if (status.statement >= 0) where += ": statement " + std::to_string(status.statement);
  switch (status.code) {
    case TILEOPS_INDEX:
      raise(ErrorKind::kArgument, where, ": the index ", status.value, " is outside 0..",
            status.bound - 1);
    case TILEOPS_ASSERT:
      raise(ErrorKind::kArgument, where, ": an assertion of the program failed");
    case TILEOPS_DIVIDE:
      raise(ErrorKind::kArgument, where, ": integer division by zero");
    case TILEOPS_STUCK:
      raise(ErrorKind::kArgument, where, ": ", status.value, " of ", status.bound,
            " threads of a block wait for others that never come (T.sync_threads, T.sync_warp and "
            "exchanges need every thread that they name)");
    default:
      raise(ErrorKind::kInternal, where, ": the kernel '", launch.entry, "' reported code ",
            status.code, " (value ", status.value, ", bound ", status.bound, ")");
  }
}

[[noreturn]] void raise_no_memory(const LaunchSpec& launch) {
  raise(ErrorKind::kOutOfMemory, launch.label, ": the tiles of the kernel '", launch.entry,
        "' take ", launch.scratch_bytes, " bytes a thread, and there is no memory for them");
}

void launch_one(const LaunchSpec& launch, const EntrySpec& entry, const CallFrame& frame) {
  const int64_t blocks = frame.slots[launch.grid];
  if (blocks <= 0) return;
  TileopsCpuEntry function = launch.cpu->function();
  TileopsValue params[kMaxParams];
  pack_cpu(launch, frame, params);
  count(Counter::kLaunches);
  const Hooks& host = hooks();
  const int64_t most = blocks / launch.grain;
  const int64_t tasks =
      most < 2 || host.parallel_for == nullptr ? 1 : std::min<int64_t>(host.thread_count(), most);
  StageClock clock;
  if (tasks <= 1) {
    TileopsStatus status{0, -1, 0, 0};
    char* scratch = launch.scratch_bytes == 0 ? nullptr : thread_scratch(launch.scratch_bytes);
    if (scratch == nullptr && launch.scratch_bytes != 0) raise_no_memory(launch);
    if (function(params, 0, blocks, scratch, &status) != 0) raise_status(status, launch, entry);
    clock.end(Stage::kKernel);
    return;
  }
  Job job;
  job.function = function;
  job.params = params;
  job.scratch_bytes = launch.scratch_bytes;
  job.blocks = blocks;
  // Eight chunks a thread bound the imbalance to an eighth of one thread's work.
  job.chunk = std::max(launch.grain, blocks / (tasks * 8));
  host.parallel_for(tasks, run_chunks, &job);
  clock.end(Stage::kKernel);
  if (job.failed.load() == 0) return;
  if (job.out_of_memory) raise_no_memory(launch);
  raise_status(job.status, launch, entry);
}

}  // namespace

void run_cpu(const EntrySpec& entry, const CallFrame& frame) {
  for (const LaunchSpec& launch : entry.launches) launch_one(launch, entry, frame);
}

}  // namespace tileops
