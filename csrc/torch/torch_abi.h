// torch's stable C interface, as far as the runtime uses it: the functions of torch 2.10, the
// oldest torch that is supported. No torch is needed to build, and a test compares all of it with
// torch's headers. A link without torch takes the names from here too.
#pragma once

#include <cstddef>
#include <cstdint>

struct AtenTensorOpaque;
struct TorchLibraryOpaque;
struct StableListOpaque;
struct StringOpaque;

using AOTITorchError = int32_t;  // 0, or a failure
using AtenTensorHandle = AtenTensorOpaque*;
using TorchLibraryHandle = TorchLibraryOpaque*;
using StableListHandle = StableListOpaque*;
using StringHandle = StringOpaque*;
using StableIValue = uint64_t;  // a value of a boxed call

namespace tileops {
// The interface that calls of the dispatcher and boxed functions follow: torch 2.10.
inline constexpr uint64_t kTorchInterface = 0x020a000000000000;
}  // namespace tileops

extern "C" {

int32_t aoti_torch_device_type_cpu();
int32_t aoti_torch_device_type_cuda();
int32_t aoti_torch_device_type_meta();
int32_t aoti_torch_layout_strided();

int32_t aoti_torch_dtype_bool();
int32_t aoti_torch_dtype_uint8();
int32_t aoti_torch_dtype_uint16();
int32_t aoti_torch_dtype_uint32();
int32_t aoti_torch_dtype_uint64();
int32_t aoti_torch_dtype_int8();
int32_t aoti_torch_dtype_int16();
int32_t aoti_torch_dtype_int32();
int32_t aoti_torch_dtype_int64();
int32_t aoti_torch_dtype_float16();
int32_t aoti_torch_dtype_bfloat16();
int32_t aoti_torch_dtype_float32();
int32_t aoti_torch_dtype_float64();
int32_t aoti_torch_dtype_float8_e4m3fn();
int32_t aoti_torch_dtype_float8_e5m2();
int32_t aoti_torch_dtype_float8_e4m3fnuz();
int32_t aoti_torch_dtype_float8_e5m2fnuz();
int32_t aoti_torch_dtype_complex32();
int32_t aoti_torch_dtype_complex64();
int32_t aoti_torch_dtype_complex128();
std::size_t aoti_torch_dtype_element_size(int32_t dtype);

// Of a tensor. Sizes, strides and data are borrowed.
AOTITorchError aoti_torch_get_dtype(AtenTensorHandle, int32_t* dtype);
AOTITorchError aoti_torch_get_device_type(AtenTensorHandle, int32_t* type);
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle, int32_t* index);
AOTITorchError aoti_torch_get_dim(AtenTensorHandle, int64_t* rank);
AOTITorchError aoti_torch_get_sizes(AtenTensorHandle, int64_t** sizes);
AOTITorchError aoti_torch_get_strides(AtenTensorHandle, int64_t** strides);
AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle, void** data);
AOTITorchError aoti_torch_get_storage_size(AtenTensorHandle, int64_t* bytes);
AOTITorchError aoti_torch_is_defined(AtenTensorHandle, bool* is_defined);

// Each handle that these return is the caller's to delete.
AOTITorchError aoti_torch_new_tensor_handle(AtenTensorHandle, AtenTensorHandle* same);
AOTITorchError aoti_torch_empty_strided(int64_t rank, const int64_t* sizes, const int64_t* strides,
                                        int32_t dtype, int32_t device_type, int32_t device_index,
                                        AtenTensorHandle* made);
AOTITorchError aoti_torch_as_strided(AtenTensorHandle, const int64_t* sizes, const int64_t* strides,
                                     AtenTensorHandle* view);
AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle);
AOTITorchError aoti_torch_copy_(AtenTensorHandle to, AtenTensorHandle from, int32_t non_blocking);
AOTITorchError aoti_torch_zero_(AtenTensorHandle);

AOTITorchError aoti_torch_get_current_device_index(int32_t* index);
AOTITorchError torch_get_num_threads(uint32_t* count);
AOTITorchError torch_parallel_for(int64_t begin, int64_t end, int64_t grain,
                                  void (*body)(int64_t begin, int64_t end, void* context),
                                  void* context);

AOTITorchError torch_list_size(StableListHandle, std::size_t* size);
AOTITorchError torch_list_get_item(StableListHandle, std::size_t index, StableIValue* item);
AOTITorchError torch_delete_list(StableListHandle);
AOTITorchError torch_string_length(StringHandle, std::size_t* length);
AOTITorchError torch_string_c_str(StringHandle, const char** text);
AOTITorchError torch_delete_string(StringHandle);

// Registrations; `file` and `line` are for torch's messages.
AOTITorchError aoti_torch_library_init_fragment(const char* ns, const char* file, uint32_t line,
                                                TorchLibraryHandle* made);
AOTITorchError aoti_torch_library_init_impl(const char* ns, const char* key, const char* file,
                                            uint32_t line, TorchLibraryHandle* made);
AOTITorchError aoti_torch_library_def(TorchLibraryHandle, const char* schema);
AOTITorchError torch_library_impl(TorchLibraryHandle, const char* name,
                                  void (*function)(StableIValue* stack, uint64_t inputs,
                                                   uint64_t outputs),
                                  uint64_t version);
AOTITorchError aoti_torch_delete_library_object(TorchLibraryHandle);
AOTITorchError torch_call_dispatcher(const char* op, const char* overload, StableIValue* stack,
                                     uint64_t version);

}  // extern "C"
