// A C++ server without Python: loads a bundle by the C functions, calls an op, prints counters and health.
// Usage: serve <libtileops.so> <bundle>
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <cstdio>
#include <string>

namespace {

void* library;

template <class Function>
Function* find(const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) std::printf("missing %s\n", name);
  return reinterpret_cast<Function*>(found);
}

void say(int status, const char* json) { std::printf("health %d %s\n", status, json); }

}  // namespace

int main(int, char** argv) {
  library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  auto* load = find<int(const char*, const char*)>("tileops_load_bundle_ex");
  auto* metrics = find<const char*()>("tileops_metrics_text");
  auto* health = find<int(const char**)>("tileops_health");
  auto* error = find<const char*()>("tileops_last_error");
  const char* json = nullptr;
  int status = health(&json);
  say(status, json);
  const int none = load("/nowhere", nullptr);
  std::printf("nowhere %d %s\n", none, error());
  std::printf("loaded %d\n", load(argv[2], "{\"namespace\": \"served\"}"));
  status = health(&json);
  say(status, json);
  std::printf("without text %d\n", health(nullptr));
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("served::sample_axpy", "");
  const at::Tensor x = at::arange(100, at::kFloat), y = at::ones({100}, at::kFloat);
  bool equal = true;
  for (int i = 0; i < 5; ++i) {
    torch::jit::Stack stack{x, y, 0.5};
    for (std::size_t n = stack.size(); n < op.schema().arguments().size(); ++n)
      stack.push_back(*op.schema().arguments()[n].default_value());
    op.callBoxed(stack);
    equal = equal && at::equal(stack.at(0).toTensor(), x * 0.5 + y);
  }
  std::printf("equal %d\n", static_cast<int>(equal));
  std::printf("python %d\n", static_cast<int>(dlsym(RTLD_DEFAULT, "Py_Initialize") != nullptr));
  std::printf("metrics\n%s", metrics());
  return 0;
}
