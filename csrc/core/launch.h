// The running of an entry: grids, workspaces, CUDA launches and CPU loops over blocks.
#pragma once

#include <cstdint>

#include "core/params.h"

namespace tileops {

inline constexpr int64_t kWorkspaceAlignment = 256;

// Byte offsets of the workspaces and of the global scratch within one allocation; returns its size,
// 0 for none.
int64_t plan_workspaces(const EntrySpec& entry, const CallFrame& frame, int64_t* offsets,
                        int64_t* scratch_offset);

// A fact of the device of a call. On the CPU `sm_count` is the number of threads; what the CPU has
// not is 0.
int64_t host_fact(bool cuda, int device_index, HostFact fact);

// True if every launch's code is loaded on the device, so that running the entry makes no loading
// call.
bool is_loaded(const EntrySpec& entry, int device_index);

// Loads every launch's code on the device, so that `is_loaded` holds.
void load(const EntrySpec& entry, int device_index);

// Runs the entry's launches in order. Launches with an empty grid are skipped and not counted.
void run_cuda(const EntrySpec& entry, const CallFrame& frame, int device_index, CUstream stream);
// Waits for the device; raises DriverError, after `what`, for what failed on it.
void finish_cuda(int device_index, CUstream stream, const char* what);
void run_cpu(const EntrySpec& entry, const CallFrame& frame);

}  // namespace tileops
