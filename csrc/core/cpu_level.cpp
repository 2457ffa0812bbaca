// The levels of processors, found from CPUID.
#include "core/cpu_level.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tileops {
namespace {

#if defined(__x86_64__)
// The psABI's micro-architecture levels (x86-64 psABI, section 3.1.1). The compiler's own test also
// asks whether the operating system saves the wide registers.
int host_level() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __get_cpuid(1, &eax, &ebx, &ecx, &edx);
  constexpr unsigned kMovbe = 1u << 22, kF16c = 1u << 29;
  const bool converts = (ecx & kMovbe) != 0 && (ecx & kF16c) != 0;
  const bool v3 = converts && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v4) return 4;
  if (v3) return 3;
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt") ? 2 : 1;
}
#endif

}  // namespace

int cpu_target_rank(const std::string& target) {
#if defined(__x86_64__)
  constexpr char kPrefix[] = "cpu:x86-64-v";
  if (target.size() != sizeof(kPrefix) || target.rfind(kPrefix, 0) != 0) return -1;
  const int level = target.back() - '0';
  const int host = host_level();
  return level >= 2 && level <= host ? level : -1;
#else
  return target == "cpu:aarch64" ? 1 : -1;
#endif
}

}  // namespace tileops
