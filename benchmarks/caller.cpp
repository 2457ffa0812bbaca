// Calls ops from C++ through torch's dispatcher, for measurements and for tests of what such calls do to Python.
//
// A shared library that a Python process loads with ctypes. It uses torch's stable C interface alone, so that it builds
// in a second. An op takes `tensors` float32 vectors of one size and `scalars` numbers, 2.0 each, then
// as many compile-time arguments left to their defaults as `nones` says, and returns one tensor.
#include <Python.h>

#ifndef TORCH_TARGET_VERSION
#define TORCH_TARGET_VERSION 0x020a000000000000
#endif
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

void check(AOTITorchError code, const char* what) {
  if (code == 0) return;
  std::fprintf(stderr, "caller: %s failed\n", what);
  std::abort();
}

class Caller {
 public:
  Caller(const char* op, const char* overload, int32_t device_type, int64_t size, int tensors, int scalars,
         int nones)
      : op_(op), overload_(overload), scalars_(scalars), nones_(nones) {
    const int64_t stride = 1;
    for (int i = 0; i < tensors; ++i) {
      AtenTensorHandle made = nullptr;
      check(aoti_torch_empty_strided(1, &size, &stride, aoti_torch_dtype_float32(), device_type, 0, &made), "empty");
      check(aoti_torch_zero_(made), "zero_");
      tensors_.push_back(made);
    }
  }
  ~Caller() {
    for (AtenTensorHandle tensor : tensors_) aoti_torch_delete_tensor_object(tensor);
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void call() {
    StableIValue stack[64];
    std::size_t i = 0;
    for (AtenTensorHandle tensor : tensors_) {
      AtenTensorHandle reference = nullptr;  // the call takes it over
      aoti_torch_new_tensor_handle(tensor, &reference);
      stack[i++] = reinterpret_cast<uintptr_t>(reference);
    }
    const double two = 2.0;
    for (int n = 0; n < scalars_; ++n) std::memcpy(&stack[i++], &two, sizeof(two));
    for (int n = 0; n < nones_; ++n) stack[i++] = 0;
    check(torch_call_dispatcher(op_, overload_, stack, TORCH_ABI_VERSION), op_);
    aoti_torch_delete_tensor_object(reinterpret_cast<AtenTensorHandle>(static_cast<uintptr_t>(stack[0])));
  }

 private:
  const char* op_;
  const char* overload_;
  int scalars_;
  int nones_;
  std::vector<AtenTensorHandle> tensors_;
};

// Python's allocators, wrapped to count what is asked of them.
std::atomic<int64_t> allocations{0};
PyMemAllocatorEx original[3];
constexpr PyMemAllocatorDomain kDomains[3] = {PYMEM_DOMAIN_RAW, PYMEM_DOMAIN_MEM, PYMEM_DOMAIN_OBJ};

void* counted_malloc(void* context, std::size_t size) {
  ++allocations;
  auto* inner = static_cast<PyMemAllocatorEx*>(context);
  return inner->malloc(inner->ctx, size);
}
void* counted_calloc(void* context, std::size_t count, std::size_t size) {
  ++allocations;
  auto* inner = static_cast<PyMemAllocatorEx*>(context);
  return inner->calloc(inner->ctx, count, size);
}
void* counted_realloc(void* context, void* memory, std::size_t size) {
  ++allocations;
  auto* inner = static_cast<PyMemAllocatorEx*>(context);
  return inner->realloc(inner->ctx, memory, size);
}
void uncounted_free(void* context, void* memory) {
  auto* inner = static_cast<PyMemAllocatorEx*>(context);
  inner->free(inner->ctx, memory);
}

template <class Body>
int64_t python_allocations_of(const Body& body) {
  for (int i = 0; i < 3; ++i) {
    PyMem_GetAllocator(kDomains[i], &original[i]);
    PyMemAllocatorEx counting = {&original[i], counted_malloc, counted_calloc, counted_realloc, uncounted_free};
    PyMem_SetAllocator(kDomains[i], &counting);
  }
  allocations = 0;
  body();
  const int64_t found = allocations;
  for (int i = 0; i < 3; ++i) PyMem_SetAllocator(kDomains[i], &original[i]);
  return found;
}

// Runs `body` on a thread that Python does not know; 1 if it ends within the time, while the calling thread waits.
template <class Body>
int ends_within(double seconds, const Body& body) {
  std::packaged_task<void()> task(body);
  std::future<void> done = task.get_future();
  std::thread(std::move(task)).detach();
  return done.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready ? 1 : 0;
}

}  // namespace

EXPORT int32_t caller_cpu() { return aoti_torch_device_type_cpu(); }
EXPORT int32_t caller_cuda() { return aoti_torch_device_type_cuda(); }

// Nanoseconds of one call, the mean of `count`.
EXPORT double caller_ns(const char* op, const char* overload, int32_t device, int64_t size, int tensors, int scalars,
                        int nones, int64_t count) {
  Caller caller(op, overload, device, size, tensors, scalars, nones);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; ++i) caller.call();
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  return spent.count() / static_cast<double>(count);
}

// What `count` calls ask of Python's allocators. The caller holds the interpreter's lock (ctypes.PyDLL).
EXPORT int64_t caller_python_allocations(const char* op, int32_t device, int64_t size, int tensors, int nones, int64_t count) {
  Caller caller(op, "", device, size, tensors, 0, nones);
  return python_allocations_of([&] {
    for (int64_t i = 0; i < count; ++i) caller.call();
  });
}

// The same for `count` Python objects, to show that they are seen.
EXPORT int64_t caller_control_allocations(int64_t count) {
  return python_allocations_of([&] {
    for (int64_t i = 0; i < count; ++i) Py_XDECREF(PyTuple_New(20 + i % 2));
  });
}

// 1 if `count` calls on a thread of C++ end while this thread holds the interpreter's lock (ctypes.PyDLL).
EXPORT int caller_needs_no_gil(const char* op, int32_t device, int64_t size, int tensors, int nones, int64_t count) {
  static Caller* caller = nullptr;  // outlives a thread that hangs
  caller = new Caller(op, "", device, size, tensors, 0, nones);
  return ends_within(20, [=] {
    for (int64_t i = 0; i < count; ++i) caller->call();
  });
}

// The same for a thread that takes the lock, to show that it would wait.
EXPORT int caller_control_gil() {
  return ends_within(0.2, [] {
    const PyGILState_STATE state = PyGILState_Ensure();
    PyGILState_Release(state);
  });
}
