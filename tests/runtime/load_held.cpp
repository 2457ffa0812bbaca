// Loads an entry as a caller does that keeps the interpreter's lock: torch lets it go before a call, others need not.
#include "torch/api.h"

extern "C" __attribute__((visibility("default"))) int load_held(uint64_t handle, uint32_t variant, int device) {
  try {
    tileops::load_entry(handle, variant, {true, device, {}, true, false});
    return 0;
  } catch (const tileops::Error&) {
    return 1;
  }
}
