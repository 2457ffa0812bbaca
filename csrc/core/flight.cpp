// The ring of recent launches and its text.
#include "core/flight.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "core/driver.h"
#include "core/params.h"

namespace tileops {
namespace {

constexpr uint64_t kRing = 32;
constexpr std::size_t kValues = 8;

// One launch. Written while others may read: every field is atomic, and `serial` is written last,
// so that a reader can tell a slot that changed under it.
struct Flight {
  std::atomic<uint64_t> serial{0};  // 0 while it is being written
  std::atomic<const char*> op{nullptr};
  std::atomic<int> device{0};
  std::atomic<CUstream> stream{nullptr};
  std::atomic<std::size_t> count{0};
  std::atomic<int64_t> sizes[kValues] = {};
};

Flight ring[kRing];
std::atomic<uint64_t> next_serial{1};

struct Seen {
  uint64_t serial;
  std::string text;
};

std::string text_of(const Flight& flight, CUstream stream, std::size_t count) {
  std::string text = flight.op.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < std::min(count, kValues); ++i) {
    text += (i == 0 ? " with sizes " : ", ") +
            std::to_string(flight.sizes[i].load(std::memory_order_relaxed));
  }
  if (count > kValues) text += ", ...";
  if (flight.stream.load(std::memory_order_relaxed) != stream) text += " (on another stream)";
  return text;
}

// Errors that a kernel reports after its launch returned: whoever calls the driver next gets them.
bool is_asynchronous(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

}  // namespace

void note_launch(const CallFrame& frame, int device_index, CUstream stream) {
  const uint64_t serial = next_serial.fetch_add(1, std::memory_order_relaxed);
  Flight& flight = ring[serial % kRing];
  flight.serial.store(0, std::memory_order_release);
  flight.op.store(frame.op, std::memory_order_relaxed);
  flight.device.store(device_index, std::memory_order_relaxed);
  flight.stream.store(stream, std::memory_order_relaxed);
  flight.count.store(frame.size_count, std::memory_order_relaxed);
  for (std::size_t i = 0; i < std::min(frame.size_count, kValues); ++i)
    flight.sizes[i].store(frame.sizes[i], std::memory_order_relaxed);
  flight.serial.store(serial, std::memory_order_release);
}

std::string recent_launches(int device_index, CUstream stream) {
  std::vector<Seen> found;
  for (const Flight& flight : ring) {
    const uint64_t serial = flight.serial.load(std::memory_order_acquire);
    if (serial == 0 || flight.device.load(std::memory_order_relaxed) != device_index) continue;
    const std::string text = text_of(flight, stream, flight.count.load(std::memory_order_relaxed));
    if (flight.serial.load(std::memory_order_acquire) == serial) found.push_back({serial, text});
  }
  std::sort(found.begin(), found.end(),
            [](const Seen& a, const Seen& b) { return a.serial > b.serial; });
  std::string text;
  for (const Seen& seen : found) text += (text.empty() ? "" : "\n") + seen.text;
  return text;
}

void raise_in_flight(CUresult result, const std::string& what, int device_index, CUstream stream) {
  if (!is_asynchronous(result)) raise_driver(result, what);
  const std::string recent = recent_launches(device_index, stream);
  if (recent.empty()) raise_driver(result, what);
  try {
    raise_driver(result, what);
  } catch (const Error& error) {
    raise(ErrorKind::kDriver, error.what(),
          "\nlaunches of tileops before it, newest first (TILEOPS_SYNC=1 finds the one that "
          "failed):\n",
          recent);
  }
}

}  // namespace tileops
