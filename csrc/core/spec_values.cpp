// Static argument values and scalar types: reading, key words, text.
#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/spec.h"

namespace tileops {
namespace {

struct TypeName {
  const char* text;
  const char* dtype;
  ScalarType type;
};
constexpr TypeName kTypes[] = {
    {"ptr", "", ScalarType::kPtr},        {"i1", "bool", ScalarType::kI1},
    {"i8", "int8", ScalarType::kI8},      {"i16", "int16", ScalarType::kI16},
    {"i32", "int32", ScalarType::kI32},   {"i64", "int64", ScalarType::kI64},
    {"u8", "uint8", ScalarType::kU8},     {"u16", "uint16", ScalarType::kU16},
    {"u32", "uint32", ScalarType::kU32},  {"u64", "uint64", ScalarType::kU64},
    {"f16", "float16", ScalarType::kF16}, {"bf16", "bfloat16", ScalarType::kBF16},
    {"f32", "float32", ScalarType::kF32}, {"f64", "float64", ScalarType::kF64},
};

}  // namespace

ScalarType scalar_type_of(const std::string& text, const char* where) {
  for (const TypeName& row : kTypes) {
    if (text == row.text) return row.type;
  }
  raise(ErrorKind::kInternal, where, ": unknown type '", text, "'");
}

ScalarType scalar_type_of_dtype(const std::string& dtype, const char* where) {
  for (const TypeName& row : kTypes) {
    if (dtype == row.dtype) return row.type;
  }
  raise(ErrorKind::kInternal, where, ": no scalar of dtype '", dtype, "'");
}

bool is_float_type(ScalarType type) {
  return type >= ScalarType::kF16;
}

void append_key_words(std::vector<uint64_t>& words, const StaticValue& value) {
  words.push_back(value.index());
  if (const auto* number = std::get_if<int64_t>(&value)) {
    words.push_back(static_cast<uint64_t>(*number));
  } else if (const auto* real = std::get_if<double>(&value)) {
    // By bits: -0.0 and 0.0 differ, and all NaNs are one.
    const double canonical = *real == *real ? *real : std::numeric_limits<double>::quiet_NaN();
    uint64_t bits;
    std::memcpy(&bits, &canonical, sizeof(bits));
    words.push_back(bits);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    words.push_back(*flag ? 1 : 0);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    words.push_back(text->size());
    for (std::size_t i = 0; i < text->size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, text->data() + i, std::min<std::size_t>(8, text->size() - i));
      words.push_back(word);
    }
  } else if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    words.push_back(list->size());
    for (int64_t item : *list) words.push_back(static_cast<uint64_t>(item));
  }
}

std::string describe(const StaticValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  if (const auto* real = std::get_if<double>(&value)) return std::to_string(*real);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "True" : "False";
  if (const auto* text = std::get_if<std::string>(&value)) return "'" + *text + "'";
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    std::string out = "[";
    for (std::size_t i = 0; i < list->size(); ++i)
      out += (i == 0 ? "" : ", ") + std::to_string((*list)[i]);
    return out + "]";
  }
  return "None";
}

}  // namespace tileops
