// The generated CPU code that this processor can run.
#pragma once

#include <string>

namespace tileops {

// How well this processor is served by code for a CPU target such as "cpu:x86-64-v3": the higher
// the better, -1 where it cannot run that code or where the text names no CPU target.
int cpu_target_rank(const std::string& target);

}  // namespace tileops
