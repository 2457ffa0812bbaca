// A C++ program without Python: loads libtileops, a bundle and an AOTInductor package, runs it, prints its outputs.
//
// Usage: aoti_without_python <libtileops.so> <bundle> <package> <device>
#include <ATen/ops/arange.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>

int main(int, char** argv) {
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 2;
  const auto load = reinterpret_cast<int (*)(const char*)>(dlsym(library, "tileops_load_bundle"));
  const auto reason = reinterpret_cast<const char* (*)()>(dlsym(library, "tileops_last_error"));
  const int ops = load(argv[2]);
  if (ops < 0) return std::fprintf(stderr, "%s\n", reason()), 3;
  std::printf("ops %d\n", ops);
  torch::inductor::AOTIModelPackageLoader model(argv[3]);
  const at::Tensor x = at::arange(15, at::TensorOptions().dtype(at::kFloat).device(argv[4]));
  for (int round = 0; round < 2; ++round) {
    for (const at::Tensor& out : model.run({x, x.add(1)})) {
      const at::Tensor values = out.to(at::kCPU, at::kDouble).contiguous();
      std::printf("out");
      for (int64_t i = 0; i < values.numel(); ++i) std::printf(" %g", values.const_data_ptr<double>()[i]);
      std::printf("\n");
    }
  }
  std::printf("python %d\n", static_cast<int>(dlsym(RTLD_DEFAULT, "Py_Initialize") != nullptr));
  return 0;
}
