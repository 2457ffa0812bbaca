// The mapping between dtype names and torch's numbers for them.
#include <dlfcn.h>

#include <vector>

#include "core/forks.h"
#include "torch/shim.h"

namespace tileops {
namespace {

struct Row {
  std::string name;
  int32_t code;
};

// Added after the oldest supported torch: found by name, absent in older ones.
void add_optional(std::vector<Row>& rows, const char* name, const char* symbol) {
  auto getter = reinterpret_cast<int32_t (*)()>(dlsym(RTLD_DEFAULT, symbol));
  if (getter != nullptr) rows.push_back({name, getter()});
}

struct Table {
  std::vector<Row> rows;
  Table() {
    rows = {
        {"bool", aoti_torch_dtype_bool()},
        {"uint8", aoti_torch_dtype_uint8()},
        {"uint16", aoti_torch_dtype_uint16()},
        {"uint32", aoti_torch_dtype_uint32()},
        {"uint64", aoti_torch_dtype_uint64()},
        {"int8", aoti_torch_dtype_int8()},
        {"int16", aoti_torch_dtype_int16()},
        {"int32", aoti_torch_dtype_int32()},
        {"int64", aoti_torch_dtype_int64()},
        {"float16", aoti_torch_dtype_float16()},
        {"bfloat16", aoti_torch_dtype_bfloat16()},
        {"float32", aoti_torch_dtype_float32()},
        {"float64", aoti_torch_dtype_float64()},
        {"float8_e4m3fn", aoti_torch_dtype_float8_e4m3fn()},
        {"float8_e5m2", aoti_torch_dtype_float8_e5m2()},
        {"float8_e4m3fnuz", aoti_torch_dtype_float8_e4m3fnuz()},
        {"float8_e5m2fnuz", aoti_torch_dtype_float8_e5m2fnuz()},
        {"complex32", aoti_torch_dtype_complex32()},
        {"complex64", aoti_torch_dtype_complex64()},
        {"complex128", aoti_torch_dtype_complex128()},
    };
    add_optional(rows, "float8_e8m0fnu", "torch_dtype_float8_e8m0fnu");
    add_optional(rows, "float4_e2m1fn_x2", "torch_dtype_float4_e2m1fn_x2");
  }
};

Lasting<Table> made;

const std::vector<Row>& table() {
  return made.get().rows;
}

}  // namespace

const TorchCodes torch_code_table;

int32_t dtype_code(const std::string& name) {
  const std::string wanted = name == "tfloat32"        ? "float32"
                             : name == "float4_e2m1fn" ? "float4_e2m1fn_x2"
                                                       : name;
  for (const Row& row : table()) {
    if (row.name == wanted) return row.code;
  }
  raise(ErrorKind::kArgumentType, "this torch has no dtype for ", name);
}

int32_t dtype_code_or(const std::string& name, int32_t otherwise) {
  for (const Row& row : table()) {
    if (row.name == name) return row.code;
  }
  return otherwise;
}

std::string dtype_name(int32_t code) {
  for (const Row& row : table()) {
    if (row.code == code) return row.name;
  }
  return "dtype number " + std::to_string(code);
}

std::string device_name(int32_t type, int32_t index) {
  const TorchCodes& codes = torch_codes();
  if (type == codes.cpu) return "cpu";
  if (type == codes.meta) return "meta";
  if (type == codes.cuda) return "cuda:" + std::to_string(index);
  return "device type " + std::to_string(type) + " index " + std::to_string(index);
}

}  // namespace tileops
