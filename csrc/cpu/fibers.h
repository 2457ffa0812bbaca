// The threads of a block as fibers of one processor thread. A fiber runs until it waits for others
// and no longer; which of them runs next is always the same, so results are, too.
#ifndef TILEOPS_CPU_FIBERS_H_
#define TILEOPS_CPU_FIBERS_H_

#include "arith.h"
#include "mma.h"
#include "tileops_cpu_abi.h"
#include "warp_reductions.h"

// Stores what calls preserve, and the stack pointer at `save`; goes on with the stack `load`, whose
// function starts with `argument` if it is a new one.
extern "C" void tileops_switch(char** save, char* load, void* argument);
#if defined(__aarch64__)
asm(R"(
.text
.p2align 4
.type tileops_switch, %function
tileops_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  mov x0, x2
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size tileops_switch, .-tileops_switch
)");
#else
asm(R"(
.text
.p2align 4
.type tileops_switch, @function
tileops_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  movq %rdx, %rdi
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
.size tileops_switch, .-tileops_switch
)");
#endif

namespace tileops {

constexpr int kMostThreads = 1024;
constexpr int kNamedBarriers = 16;

class Block;

// One thread of a block: what its statements ask of the others.
class Thread {
 public:
  i32 index;
  i64 rank;  // of its block in the cluster

  // Waits for all threads of the block that have not ended.
  void sync_block();
  // Waits for `count` threads at one of the block's barriers; without `waits`, arrives alone.
  void sync_named(i32 number, i32 count, bool waits);
  // Waits for the lanes of `mask` in the thread's warp that have not ended.
  void sync_warp(u32 mask);

  // What other lanes of the warp hold, as CUDA's functions of these names have it.
  template <class T>
  T shfl_sync(T value, i32 lane, i32 width, u32 mask) {
    return from_lane(value, first_of(width) + (lane & (width - 1)), mask);
  }
  template <class T>
  T shfl_up(T value, i32 delta, i32 width, u32 mask) {
    const i32 from = lane() - delta;
    return from_lane(value, from < first_of(width) ? lane() : from, mask);
  }
  template <class T>
  T shfl_down(T value, i32 delta, i32 width, u32 mask) {
    const i32 from = lane() + delta;
    return from_lane(value, from >= first_of(width) + width ? lane() : from, mask);
  }
  template <class T>
  T shfl_xor(T value, i32 bits, i32 width, u32 mask) {
    const i32 from = lane() ^ bits;
    return from_lane(value, from >= first_of(width) + width ? lane() : from, mask);
  }
  u64 ballot_sync(bool holds, u32 mask) {
    return holding(u64{holds}, mask, [](u64 other) { return other != 0; });
  }
  i32 any_sync(bool holds, u32 mask) { return ballot_sync(holds, mask) != 0; }
  i32 all_sync(bool holds, u32 mask) {
    return holding(u64{holds}, mask, [](u64 other) { return other == 0; }) == 0;
  }
  template <class T>
  u32 match_any_sync(T value, u32 mask) {
    const u64 own = bits_of(value);
    return static_cast<u32>(holding(own, mask, [own](u64 other) { return other == own; }));
  }
  template <class T>
  u32 match_all_sync(T value, u32 mask) {
    const u64 own = bits_of(value);
    return holding(own, mask, [own](u64 other) { return other != own; }) == 0 ? mask : 0;
  }
  // Barriers of the block that count the threads in which a condition holds.
  i32 syncthreads_count(bool holds);
  i32 syncthreads_and(bool holds) { return syncthreads_count(!holds) == 0; }
  i32 syncthreads_or(bool holds) { return syncthreads_count(holds) != 0; }

  // The barrier of the cluster.
  void cluster_arrive();
  void cluster_wait();
  // The same place in shared memory of another block of the cluster.
  template <class T>
  T* in_block(T* place, i32 block);
  // The whole warps of the block.
  i32 warps() const;
  // Adds products of a warp's matrices to its sums; mma.h says which thread has what.
  template <class A, class B, class Sum>
  void mma(Sum (&sums)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    const u32* const own[2] = {a, b};
    held_ = reinterpret_cast<u64>(own);
    meet(~u32{0}, 4);
    for (int s = 0; s < 4; ++s) {
      for (int n = 0; n < 8; ++n) {  // a pair of words: depth is in halves of four of them
        const u32 x = shown<const u32*>(lane() / 4 * 4 + n % 4)[0][s / 2 + n / 4 * 2];
        const u32 y = shown<const u32*>((lane() % 4 * 2 + s % 2) * 4 + n % 4)[1][n / 4];
        sums[s] = add_products<A, B>(sums[s], x, y);
      }
    }
    meet(~u32{0}, 5);
  }
  // Rows of 16 bytes of matrices of 8 x 8 halves: lane 8 n + i has the address of row i of matrix
  // n. Word n of a thread is of row lane / 4, or column with `transposed`, halves 2 (lane % 4) and
  // the next.
  template <int count, bool transposed>
  void load_matrix(u32 (&out)[count], const void* row) {
    const u16* const own = static_cast<const u16*>(row);
    held_ = reinterpret_cast<u64>(&own);
    meet(~u32{0}, 4);
    for (int n = 0; n < count; ++n) {
      out[n] = 0;
      for (int half = 0; half < 2; ++half) {
        const int i = lane() / 4, j = lane() % 4 * 2 + half;
        const u32 bits = shown<const u16*>(n * 8 + (transposed ? j : i))[0][transposed ? i : j];
        out[n] |= bits << (16 * half);
      }
    }
    meet(~u32{0}, 5);
  }

 private:
  friend class Block;
  Block* block_;
  char* stack_;
  u64 held_;           // what the thread shows the lanes of its warp
  u64 waits_for_;      // the lanes, and which of two meetings; 0 for a thread that does not wait
  i32 cluster_round_;  // of the cluster's barrier, when the thread arrived
  bool has_ended_;

  i32 lane() const { return index & 31; }
  i32 first_of(i32 width) const { return lane() & ~(width - 1); }
  template <class T>
  static u64 bits_of(T value) {
    u64 bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return bits;
  }
  // What a lane of the warp shows: the address of an array of `T`.
  template <class T>
  const T* shown(i32 lane) {
    return reinterpret_cast<const T*>(of_lane(lane)->held_);
  }
  // The thread of a lane of this warp that has not ended, or null.
  Thread* of_lane(i32 lane);
  void meet(u32 mask, u64 number);
  template <class T>
  T from_lane(T value, i32 lane, u32 mask) {
    held_ = bits_of(value);
    meet(mask, 1);
    const Thread* other = (mask >> (lane & 31)) & 1 ? of_lane(lane) : nullptr;
    if (other != nullptr) __builtin_memcpy(&value, &other->held_, sizeof(T));
    meet(mask, 2);
    return value;
  }
  // A bit for each lane of the mask in which the condition holds for what it shows.
  template <class Condition>
  u64 holding(u64 own, u32 mask, Condition holds) {
    held_ = own;
    meet(mask, 1);
    u64 found = 0;
    for (i32 lane = 0; lane < 32; ++lane) {
      const Thread* other = (mask >> lane) & 1 ? of_lane(lane) : nullptr;
      if (other != nullptr && holds(other->held_)) found |= u64{1} << lane;
    }
    meet(mask, 2);
    return found;
  }
  template <class Condition>
  void wait_until(Condition is_met);
};

// Arrivals at a barrier: those of the current round, and the rounds that are complete.
struct Barrier {
  i32 arrived;
  i32 rounds;
};

// What the blocks of a cluster share; their shared memory is `stride` bytes apart.
struct Cluster {
  Barrier barrier;
  i32 alive;
  i64 stride;
};

class Block {
 public:
  // Gets `count` threads ready, each `run(thread, argument)` on `stack_bytes` of `stacks`.
  void start(Cluster* cluster, i64 rank, i32 count, char* stacks, i64 stack_bytes,
             i32 (*run)(Thread&, void*), void* argument) {
    cluster_ = cluster;
    count_ = alive_ = count;
    run_ = run, argument_ = argument;
    result_ = TILEOPS_OK;
    all_ = Barrier{0, 0};
    votes_[0] = votes_[1] = 0;
    for (Barrier& barrier : named_) barrier = Barrier{0, 0};
    for (i32 n = 0; n < count; ++n) {
      Thread& thread = threads_[n];
      thread.index = n, thread.rank = rank, thread.block_ = this, thread.has_ended_ = false;
      thread.held_ = thread.waits_for_ = 0;
      thread.stack_ = first_frame(stacks + (n + 1) * stack_bytes);
    }
  }
  // Lets each thread run until it waits. False where none went on.
  bool pass() {
    has_moved_ = false;
    for (i32 n = 0; n < count_ && result_ == TILEOPS_OK; ++n) {
      if (!threads_[n].has_ended_) tileops_switch(&main_, threads_[n].stack_, &threads_[n]);
    }
    return has_moved_;
  }
  i32 result() const { return result_; }

 private:
  friend class Thread;

  // A stack from which tileops_switch returns into `enter`.
  static char* first_frame(char* end) {
    char* top = reinterpret_cast<char*>(reinterpret_cast<u64>(end) & ~u64{63});
#if defined(__aarch64__)
    u64* frame = reinterpret_cast<u64*>(top - 160);
    for (int n = 0; n < 20; ++n) frame[n] = 0;
    frame[11] = reinterpret_cast<u64>(&enter);
#else
    u64* frame = reinterpret_cast<u64*>(top - 64);
    for (int n = 0; n < 8; ++n) frame[n] = 0;
    frame[6] = reinterpret_cast<u64>(&enter);
#endif
    return reinterpret_cast<char*>(frame);
  }

  static void enter(void* given) {
    Thread& thread = *static_cast<Thread*>(given);
    Block& block = *thread.block_;
    const i32 code = block.run_(thread, block.argument_);
    if (code != TILEOPS_OK) block.result_ = code;
    thread.has_ended_ = true;
    block.alive_ -= 1;
    block.cluster_->alive -= 1;
    block.has_moved_ = true;
    block.release_all();
    release(block.cluster_->barrier, block.cluster_->alive);
    tileops_switch(&thread.stack_, block.main_, nullptr);
    __builtin_unreachable();
  }

  static void release(Barrier& barrier, i32 expected) {
    if (barrier.arrived >= expected && barrier.arrived > 0) {
      barrier.arrived = 0;
      barrier.rounds += 1;
    }
  }

  // The votes of the round after the next are counted from 0.
  void release_all() {
    const i32 before = all_.rounds;
    release(all_, alive_);
    if (all_.rounds != before) votes_[all_.rounds & 1] = 0;
  }

  Cluster* cluster_;
  i32 count_, alive_, result_;
  i32 (*run_)(Thread&, void*);
  void* argument_;
  char* main_;
  bool has_moved_;
  Barrier all_;
  i32 votes_[2];  // in rounds of `all_` with an even number, and an odd one
  Barrier named_[kNamedBarriers];
  Thread threads_[kMostThreads];
};

// What the generator (codegen/cpu/threads.py) gives a block in its arena.
constexpr i64 kBlockBytes = 64 << 10;
static_assert(sizeof(Block) <= kBlockBytes, "a block's state does not fit in its arena");

template <class Condition>
inline void Thread::wait_until(Condition is_met) {
  while (!is_met()) tileops_switch(&stack_, block_->main_, nullptr);
  block_->has_moved_ = true;
}

inline void Thread::sync_block() {
  Barrier& barrier = block_->all_;
  const i32 round = barrier.rounds;
  barrier.arrived += 1;
  block_->has_moved_ = true;
  block_->release_all();
  wait_until([&] { return barrier.rounds != round; });
}

inline i32 Thread::syncthreads_count(bool holds) {
  i32& votes = block_->votes_[block_->all_.rounds & 1];
  votes += holds ? 1 : 0;
  sync_block();
  return votes;
}

inline i32 Thread::warps() const {
  return block_->count_ / 32;
}

inline Thread* Thread::of_lane(i32 lane) {
  const i32 number = (index & ~31) + lane;
  if (number >= block_->count_ || block_->threads_[number].has_ended_) return nullptr;
  return &block_->threads_[number];
}

// Goes on when all lanes of the mask are at this meeting; the last to notice lets the others go.
inline void Thread::meet(u32 mask, u64 number) {
  const u64 here = number << 32 | mask;
  waits_for_ = here;
  block_->has_moved_ = true;
  wait_until([&] {
    if (waits_for_ == 0) return true;
    for (i32 lane = 0; lane < 32; ++lane) {
      const Thread* other = (mask >> lane) & 1 ? of_lane(lane) : nullptr;
      if (other != nullptr && other->waits_for_ != here) return false;
    }
    for (i32 lane = 0; lane < 32; ++lane) {
      Thread* other = (mask >> lane) & 1 ? of_lane(lane) : nullptr;
      if (other != nullptr) other->waits_for_ = 0;
    }
    waits_for_ = 0;
    return true;
  });
}

inline void Thread::sync_warp(u32 mask) {
  meet(mask, 3);
}

inline void Thread::sync_named(i32 number, i32 count, bool waits) {
  Barrier& barrier = block_->named_[number];
  const i32 round = barrier.rounds;
  barrier.arrived += 1;
  block_->has_moved_ = true;
  Block::release(barrier, count);
  if (waits) wait_until([&] { return barrier.rounds != round; });
}

inline void Thread::cluster_arrive() {
  Cluster& cluster = *block_->cluster_;
  cluster_round_ = cluster.barrier.rounds;
  cluster.barrier.arrived += 1;
  block_->has_moved_ = true;
  Block::release(cluster.barrier, cluster.alive);
}

inline void Thread::cluster_wait() {
  const Barrier& barrier = block_->cluster_->barrier;
  wait_until([&] { return barrier.rounds != cluster_round_; });
}

template <class T>
inline T* Thread::in_block(T* place, i32 block) {
  const i64 bytes = (block - rank) * block_->cluster_->stride;
  return reinterpret_cast<T*>(reinterpret_cast<u64>(place) + static_cast<u64>(bytes));
}

// Runs a body, a function object of a thread, by `count` threads of each of the `blocks` of a
// cluster. `states` has room for so many blocks.
template <class Body>
inline i32 run_threads(i32 blocks, i64 stride, i32 count, char* states, char* stacks,
                       i64 stack_bytes, const Body& body, TileopsStatus* status) {
  const auto run = [](Thread& thread, void* argument) -> i32 {
    return (*static_cast<const Body*>(argument))(thread);
  };
  const auto block = [&](i32 n) -> Block& {
    return *reinterpret_cast<Block*>(states + n * kBlockBytes);
  };
  void* argument = const_cast<void*>(static_cast<const void*>(&body));
  Cluster cluster{Barrier{0, 0}, blocks * count, stride};
  for (i32 n = 0; n < blocks; ++n)
    block(n).start(&cluster, n, count, stacks + n * count * stack_bytes, stack_bytes, run,
                   argument);
  while (cluster.alive > 0) {
    bool has_moved = false;
    for (i32 n = 0; n < blocks; ++n) {
      has_moved |= block(n).pass();
      if (block(n).result() != TILEOPS_OK) return block(n).result();
    }
    if (!has_moved) {  // every thread waits for one that does not come
      *status = TileopsStatus{TILEOPS_STUCK, -1, cluster.alive, blocks * count};
      return TILEOPS_STUCK;
    }
  }
  return TILEOPS_OK;
}

}  // namespace tileops

#endif  // TILEOPS_CPU_FIBERS_H_
