// Memory from torch's allocator.
#include "torch/allocate.h"

namespace tileops {
namespace {

[[noreturn]] __attribute__((cold, noinline)) void fail_allocation(const Binding& call,
                                                                  const int64_t* sizes,
                                                                  int64_t rank, int32_t dtype,
                                                                  const char* what) {
  int64_t count = 1;
  for (int64_t i = 0; i < rank; ++i) count *= sizes[i] > 1 ? sizes[i] : 1;
  raise(ErrorKind::kOutOfMemory, call.op->spec.title(), ": torch could not allocate ", what, " of ",
        count, " elements of ", dtype_name(dtype), " on ",
        call.cuda ? "cuda:" + std::to_string(call.device_index) : "cpu");
}

}  // namespace

TensorHandle allocate_strided(const Binding& call, const int64_t* sizes, const int64_t* strides,
                              int64_t rank, int32_t dtype, const char* what) {
  const TorchCodes& codes = torch_codes();
  AtenTensorHandle handle = nullptr;
  const AOTITorchError code = aoti_torch_empty_strided(rank, sizes, strides, dtype,
                                                       call.cuda   ? codes.cuda
                                                       : call.meta ? codes.meta
                                                                   : codes.cpu,
                                                       call.device_index, &handle);
  if (__builtin_expect(code != 0, 0)) fail_allocation(call, sizes, rank, dtype, what);
  return TensorHandle(handle);
}

TensorHandle allocate(const Binding& call, const int64_t* sizes, int64_t rank, int32_t dtype,
                      const char* what) {
  SmallBuffer<int64_t, 16> buffer(static_cast<std::size_t>(rank));
  int64_t* strides = buffer.data();
  int64_t step = 1;
  for (int64_t i = rank - 1; i >= 0; --i) {
    strides[i] = step;
    if (sizes[i] < 0 || __builtin_mul_overflow(step, sizes[i] > 1 ? sizes[i] : 1, &step)) {
      raise(ErrorKind::kArgument, call.op->spec.title(), ": ", what,
            " would have an impossible extent of ", sizes[i]);
    }
  }
  return allocate_strided(call, sizes, strides, rank, dtype, what);
}

void* data_of(AtenTensorHandle tensor) {
  void* data = nullptr;
  check_torch(aoti_torch_get_data_ptr(tensor, &data), "aoti_torch_get_data_ptr");
  return data;
}

}  // namespace tileops
