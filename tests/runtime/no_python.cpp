// A C++ program without Python: defines an op, calls it through torch's dispatcher, and prints what it sees.
//
// Usage: no_python <kernel library>
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "torch/api.h"

namespace {

std::string library_path;

const char* kOp = R"({"format": 1, "namespace": "tileops", "name": "plain", "schema": "plain(Tensor a, Tensor b) -> Tensor",
  "args": [{"name": "a", "kind": "tensor", "role": "tensor"}, {"name": "b", "kind": "tensor", "role": "tensor"}],
  "returns": ["alloc:0"]})";
const char* kVariant = R"({"static": [], "scalars": [], "sizes": [{"name": "N", "kind": "dynamic", "bits": 32}],
  "tensors": [{"arg": 0, "name": "a", "dtypes": ["float32"], "shape": [{"bind": 0}], "strides": null},
              {"arg": 1, "name": "b", "dtypes": ["float32"], "shape": [{"bind": 0}], "strides": null}],
  "host": {"inputs": ["size:0"], "code": []}, "align_sizes": [], "outputs": [{"dtype": "float32", "shape": [0]}]})";
const char* kEntry = R"({"device": "cpu", "consts": [], "fast": true, "index64": false,
  "host": {"inputs": ["size:0"], "code": [["const", 1023], ["add", 0, 1], ["const", 1024], ["floordiv", 2, 3]]},
  "outputs": [{"dtype": "float32", "shape": [0]}], "tensor_order": [{"arg": 0}, {"arg": 1}, {"output": 0}],
  "launches": [{"image": "k", "entry": "add", "grid": 4, "op_label": "plain", "params": [
     {"kind": "tensor", "index": 0}, {"kind": "tensor", "index": 1}, {"kind": "tensor", "index": 2},
     {"kind": "slot", "slot": 0, "type": "i64"}]}]})";

void resolve(void*, const tileops::Request& request) {
  if (request.kind == tileops::Request::kVariant) {
    tileops::add_variant(request.handle, kVariant);
    return;
  }
  tileops::EntrySpec::ImageMap images;
  images["k"] = tileops::ImageSource{"k", "", library_path};
  tileops::add_entry(request.handle, request.variant, kEntry, images);
}

using Binary = at::Tensor(const at::Tensor&, const at::Tensor&);

double median_ns(const c10::TypedOperatorHandle<Binary>& op, const at::Tensor& a, const at::Tensor& b) {
  std::vector<double> rounds;
  for (int round = 0; round < 21; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 2000; ++i) op.call(a, b);
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    rounds.push_back(spent.count() / 2000);
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[10];
}

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
    return "none";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

}  // namespace

int main(int, char** argv) {
  library_path = argv[1];
  const uint64_t handle = tileops::create_op(kOp);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("tileops::plain", "").typed<Binary>();
  const at::Tensor a = at::arange(5, at::kFloat), b = at::full({5}, 10.0, at::kFloat);
  std::printf("unresolved %s\n", error_of([&] { op.call(a, b); }).c_str());
  tileops::set_resolver(handle, tileops::Resolver{resolve, nullptr});
  std::printf("equal %d\n", static_cast<int>(at::equal(op.call(a, b), a + b)));
  std::printf("wrong %s\n", error_of([&] { op.call(a, b.to(at::kDouble)); }).c_str());
  std::printf("python %d\n", static_cast<int>(dlsym(RTLD_DEFAULT, "Py_Initialize") != nullptr));
  std::printf("ns_op %.0f\n", median_ns(op, a, b));
  return 0;
}
