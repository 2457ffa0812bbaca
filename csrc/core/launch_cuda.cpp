// CUDA launches and the layout of workspaces.
#include "core/counters.h"
#include "core/error.h"
#include "core/flight.h"
#include "core/hooks.h"
#include "core/launch.h"
#include "core/stages.h"

namespace tileops {
namespace {

constexpr int64_t kMaxGrid =
    INT32_MAX;  // gridDim.x; CUDA C++ programming guide, technical specifications

[[noreturn]] __attribute__((cold, noinline)) void workspace_overflow(const char* op) {
  raise(ErrorKind::kArgument, op,
        ": the workspaces of this call have a negative or impossible size");
}

void add_region(int64_t bytes, int64_t* total, int64_t* offset, const char* op) {
  *offset = *total;
  int64_t end;
  if (bytes < 0 || __builtin_add_overflow(*total, bytes, &end) ||
      end > INT64_MAX - kWorkspaceAlignment) {
    workspace_overflow(op);
  }
  *total = (end + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// gridDim.y and .z; CUDA C++ programming guide, technical specifications.
constexpr int64_t kMaxMoreGrid = 65535;

struct Grid {
  int64_t x;  // thread blocks, 0 for an empty grid
  unsigned y = 1, z = 1;
};

// Fills the extents after the first; false for an empty grid.
__attribute__((noinline)) bool put_more_grid(const LaunchSpec& launch, const CallFrame& frame,
                                             Grid& grid) {
  unsigned* out[] = {&grid.y, &grid.z};
  for (std::size_t i = 0; i < launch.more_grid.size(); ++i) {
    const int64_t extent = frame.slots[launch.more_grid[i]];
    if (extent <= 0) return false;
    if (extent > kMaxMoreGrid) {
      raise(ErrorKind::kArgument, frame.op, ": extent ", i + 1, " of the grid of '", launch.title,
            "' is ", extent, ", over the limit of ", kMaxMoreGrid,
            "; let the first extent be the large one");
    }
    *out[i] = static_cast<unsigned>(extent);
  }
  return true;
}

Grid checked_grid(const LaunchSpec& launch, const CallFrame& frame) {
  const int64_t programs = frame.slots[launch.grid];
  Grid grid{programs};
  if (programs <= 0) return {0};
  if (__builtin_expect(!launch.more_grid.empty(), 0) && !put_more_grid(launch, frame, grid))
    return {0};
  // A cluster is small, so the product cannot overflow where its factor is within the limit.
  const int64_t blocks = programs > kMaxGrid ? programs : programs * launch.cluster;
  if (__builtin_expect(blocks > kMaxGrid, 0)) {
    raise(ErrorKind::kArgument, frame.op, ": a grid of ", blocks, " blocks is over the limit of ",
          kMaxGrid, "; use larger blocks or split the call");
  }
  grid.x = blocks;
  return grid;
}

std::string grid_text(const Grid& grid) {
  std::string text = std::to_string(grid.x);
  if (grid.y > 1 || grid.z > 1) text += " x " + std::to_string(grid.y);
  if (grid.z > 1) text += " x " + std::to_string(grid.z);
  return text;
}

// Fills `out` with what differs from a plain launch, and returns how many attributes that are.
unsigned attributes_of(const LaunchSpec& launch, CUlaunchAttribute* out) {
  unsigned count = 0;
  if (launch.cluster > 1) {
    CUlaunchAttribute& attribute = out[count++];
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = launch.cluster;
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
  }
  if (launch.dependent) {
    CUlaunchAttribute& attribute = out[count++];
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  if (launch.cooperative) {
    CUlaunchAttribute& attribute = out[count++];
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
  }
  return count;
}

unsigned threads_of(const CUlaunchConfig& config) {
  return config.blockDimX * config.blockDimY * config.blockDimZ;
}

// Says how many blocks of a cooperative launch that the driver refused could run at once.
[[noreturn]] __attribute__((cold, noinline)) void too_many_at_once(const LaunchSpec& launch,
                                                                   const CUlaunchConfig& config,
                                                                   CUfunction function,
                                                                   const Grid& grid,
                                                                   int device_index) {
  int each = 0;
  check_driver(driver().max_active_blocks(&each, function, static_cast<int>(threads_of(config)),
                                          config.sharedMemBytes),
               "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  const int64_t processors = host_fact(true, device_index, HostFact::kSmCount);
  raise(ErrorKind::kArgument, launch.label, ": the cooperative grid of '", launch.title, "' has ",
        grid_text(grid), " blocks of ", threads_of(config), " threads and ", config.sharedMemBytes,
        " bytes of shared memory; expected at most ", each * processors,
        " blocks, which cuda:", device_index, " runs at once (", each, " on each of ", processors,
        " multiprocessors)");
}

[[noreturn]] __attribute__((cold, noinline)) void launch_failed(
    CUresult result, const LaunchSpec& launch, const CUlaunchConfig& config, CUfunction function,
    const Grid& grid, int device_index) {
  // With clusters the blocks that a multiprocessor holds do not tell how many run at once.
  if (result == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE && launch.cluster == 1)
    too_many_at_once(launch, config, function, grid, device_index);
  raise_in_flight(result,
                  launch.label + ": launching '" + launch.title + "' with " + grid_text(grid) +
                      " blocks of " + std::to_string(threads_of(config)) + " threads and " +
                      std::to_string(config.sharedMemBytes) + " bytes of shared memory on cuda:" +
                      std::to_string(device_index) + ": cuLaunchKernelEx",
                  device_index, config.hStream);
}

void launch_one(const LaunchSpec& launch, const CallFrame& frame, int device_index,
                CUstream stream) {
  const Grid grid = checked_grid(launch, frame);
  if (grid.x == 0) return;
  CUfunction function = launch.cuda->function_on(device_index);
  CudaParams params;
  pack_cuda(launch, frame, params);
  CUlaunchConfig config = {};
  config.gridDimX = static_cast<unsigned>(grid.x);
  config.gridDimY = grid.y;
  config.gridDimZ = grid.z;
  config.blockDimX = launch.threads;
  config.blockDimY = launch.more_threads[0];
  config.blockDimZ = launch.more_threads[1];
  config.sharedMemBytes = launch.cuda->shared_bytes();
  config.hStream = stream;
  CUlaunchAttribute attributes[3];
  config.attrs = attributes;
  config.numAttrs = attributes_of(launch, attributes);
  StageClock clock;
  GilReleaseScope no_gil;
  const CUresult result = driver().launch_kernel_ex(&config, function, params.pointers, nullptr);
  clock.end(Stage::kKernel);
  if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
    launch_failed(result, launch, config, function, grid, device_index);
  }
  note_launch(frame, device_index, stream);
  count(Counter::kLaunches);
}

// The bits of the status word of tileops/passes/report_checks.py.
constexpr int kValueBits = 40;
constexpr int64_t kHalf = int64_t{1} << (kValueBits - 1);
constexpr int64_t kMostChecks = int64_t{1} << 20;

bool is_capturing(CUstream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  check_driver(driver().stream_is_capturing(stream, &capture), "cuStreamIsCapturing");
  return capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Waits for the launches and raises what the first failed check of the program says.
__attribute__((cold, noinline)) void read_status(const EntrySpec& entry, const CallFrame& frame,
                                                 CUdeviceptr word, CUstream stream) {
  int64_t status = 0;
  {
    GilReleaseScope no_gil;
    check_driver(driver().memcpy_dtoh_async(&status, word, sizeof(status), stream),
                 "cuMemcpyDtoHAsync");
    check_driver(driver().stream_synchronize(stream), "cuStreamSynchronize");
  }
  if (status == 0) return;
  const int64_t number = kMostChecks - (status >> kValueBits);
  const int64_t value = (status & (2 * kHalf - 1)) - kHalf;
  const auto report = entry.reports.find(number);
  if (report == entry.reports.end())
    raise(ErrorKind::kArgument, frame.op, ": check ", number, " of the program failed for ", value);
  raise(ErrorKind::kArgument, frame.op, ": ", report->second.text(value));
}

}  // namespace

int64_t plan_workspaces(const EntrySpec& entry, const CallFrame& frame, int64_t* offsets,
                        int64_t* scratch_offset) {
  int64_t total = 0;
  for (std::size_t i = 0; i < entry.workspaces.size(); ++i) {
    add_region(frame.slots[entry.workspaces[i]], &total, &offsets[i], frame.op);
  }
  *scratch_offset = -1;
  if (!entry.cuda) return total;
  int64_t scratch =
      0;  // launches follow each other on one stream, so they share the scratch of the largest
  for (const LaunchSpec& launch : entry.launches) {
    if (launch.scratch_bytes == 0) continue;
    int64_t bytes = static_cast<int64_t>(launch.scratch_bytes * launch.cluster);
    bool overflows = __builtin_mul_overflow(bytes, frame.slots[launch.grid], &bytes);
    for (uint16_t slot : launch.more_grid)
      overflows |= __builtin_mul_overflow(bytes, frame.slots[slot], &bytes);
    if (overflows) workspace_overflow(frame.op);
    if (bytes > scratch) scratch = bytes;
  }
  if (scratch > 0) add_region(scratch, &total, scratch_offset, frame.op);
  return total;
}

int64_t host_fact(bool cuda, int device_index, HostFact fact) {
  if (cuda) return device_info(device_index).facts[static_cast<int>(fact)];
  if (fact == HostFact::kWarpSize) return 1;
  if (fact != HostFact::kSmCount) return 0;
  return hooks().thread_count == nullptr ? 1 : hooks().thread_count();
}

bool is_loaded(const EntrySpec& entry, int device_index) {
  for (const LaunchSpec& launch : entry.launches) {
    if (entry.cuda ? launch.cuda->loaded_on(device_index) == nullptr : !launch.cpu->is_loaded())
      return false;
  }
  return true;
}

void load(const EntrySpec& entry, int device_index) {
  if (!entry.cuda) {
    for (const LaunchSpec& launch : entry.launches) launch.cpu->function();
    return;
  }
  ContextScope context(device_info(device_index));
  for (const LaunchSpec& launch : entry.launches) launch.cuda->function_on(device_index);
}

void finish_cuda(int device_index, CUstream stream, const char* what) {
  ContextScope context(device_info(device_index));
  GilReleaseScope no_gil;
  const CUresult result = driver().ctx_synchronize();
  if (result != CUDA_SUCCESS) raise_in_flight(result, what, device_index, stream);
}

void run_cuda(const EntrySpec& entry, const CallFrame& frame, int device_index, CUstream stream) {
  bool any = false;
  for (const LaunchSpec& launch : entry.launches) any |= checked_grid(launch, frame).x > 0;
  if (!any) return;
  ContextScope context(device_info(device_index));
  CUdeviceptr status = 0;
  // A captured graph is replayed without this function, so nothing would read the word.
  if (__builtin_expect(entry.status >= 0, 0)) {
    status = reinterpret_cast<CUdeviceptr>(frame.workspaces[entry.status]);
    check_driver(driver().memset_d8_async(status, 0, sizeof(int64_t), stream), "cuMemsetD8Async");
  }
  for (const LaunchSpec& launch : entry.launches) launch_one(launch, frame, device_index, stream);
  if (__builtin_expect(status != 0, 0) && !is_capturing(stream))
    read_status(entry, frame, status, stream);
}

}  // namespace tileops
