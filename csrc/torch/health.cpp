// What a server asks of this process: its counters as text, and whether it can serve.
#include <dlfcn.h>

#include <array>

#include "core/counters.h"
#include "core/cpu_level.h"
#include "core/driver.h"
#include "core/json.h"
#include "torch/api.h"
#include "torch/op.h"

namespace tileops {
namespace {

struct Metric {
  const char* name;
  const char* help;
  Counter counter;
  bool is_nanoseconds = false;
};

constexpr std::array<Metric, 4> kMetrics{{
    {"tileops_kernel_launches_total", "Kernel launches.", Counter::kLaunches},
    {"tileops_kernel_loads_total", "Kernel images that were loaded.", Counter::kLoads},
    {"tileops_kernel_load_seconds_total", "Seconds spent loading kernel images.",
     Counter::kLoadNanoseconds, true},
    {"tileops_call_misses_total", "Calls whose kernel was not there yet.", Counter::kResolves},
}};

std::string decimal_seconds(int64_t nanoseconds) {
  std::string fraction = std::to_string(nanoseconds % 1'000'000'000);
  fraction.insert(0, 9 - fraction.size(), '0');
  return std::to_string(nanoseconds / 1'000'000'000) + "." + fraction;
}

// One metric in the text format of Prometheus.
void append(std::string& out, const Metric& metric) {
  const int64_t total = counter_total(metric.counter);
  const std::string name = metric.name;
  out += "# HELP " + name + " " + metric.help + "\n# TYPE " + name + " counter\n" + name + " ";
  out += metric.is_nanoseconds ? decimal_seconds(total) : std::to_string(total);
  out += "\n";
}

// The best level of x86-64 that this processor has; empty on others.
std::string cpu_target() {
  for (const char* target : {"cpu:x86-64-v4", "cpu:x86-64-v3", "cpu:x86-64-v2", "cpu:aarch64"}) {
    if (cpu_target_rank(target) >= 0) return target;
  }
  return "";
}

enum class Health : int { kGood = 0, kDegraded = 1, kFailing = 2 };
constexpr const char* kWords[] = {"ok", "degraded", "failing"};

struct Report {
  Health status = Health::kGood;
  std::vector<std::string> problems;

  void add(Health at_least, const std::string& problem) {
    if (at_least > status) status = at_least;
    problems.push_back(problem);
  }
};

bool is_torch_for_cuda() {
  void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  dlclose(library);
  return true;
}

// The number of devices; a torch for CUDA without a driver still serves the CPU.
int check_cuda(Report& report) {
  try {
    if (is_torch_for_cuda()) driver();
    return device_count();
  } catch (const Error& error) {
    report.add(Health::kDegraded, error.what());
    return 0;
  }
}

std::string health_json(Health& status) {
  Report report;
  const std::size_t ops = registered_count();
  if (ops == 0) report.add(Health::kFailing, "no op is registered: load a bundle");
  const int devices = check_cuda(report);
  status = report.status;
  std::string out = "{\"status\": ";
  json::append_quoted(out, kWords[static_cast<int>(status)]);
  out += ", \"ops\": " + std::to_string(ops) + ", \"cpu\": ";
  json::append_quoted(out, cpu_target());
  out += ", \"cuda_devices\": " + std::to_string(devices) + ", \"strict\": ";
  out += strict() ? "true" : "false";
  out += ", \"problems\": [";
  for (const std::string& problem : report.problems) {
    if (&problem != &report.problems.front()) out += ", ";
    json::append_quoted(out, problem);
  }
  return out + "]}";
}

}  // namespace
}  // namespace tileops

extern "C" const char* tileops_metrics_text() {
  static thread_local std::string text;
  text.clear();
  for (const tileops::Metric& metric : tileops::kMetrics) tileops::append(text, metric);
  return text.c_str();
}

extern "C" int tileops_health(const char** json) {
  static thread_local std::string text;
  tileops::Health status = tileops::Health::kFailing;
  text = tileops::health_json(status);
  if (json != nullptr) *json = text.c_str();
  return static_cast<int>(status);
}
