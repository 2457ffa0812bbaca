// The JSON reader: strict, limited in depth and size, integers exact in 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tileops::json {

enum class Type { kNull, kBool, kInt, kDouble, kString, kArray, kObject };

// A parsed value. Accessors raise InternalError naming `where` if the type is another: malformed
// op.json is a fault of what wrote it, never of a user's call.
class Value {
 public:
  Type type = Type::kNull;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<Value> items;
  std::vector<std::pair<std::string, Value>> members;

  bool is_null() const { return type == Type::kNull; }
  bool as_bool(const char* where) const;
  int64_t as_int(const char* where) const;
  int64_t as_int_in(int64_t low, int64_t high, const char* where) const;
  double as_double(const char* where) const;  // an integer counts
  const std::string& as_string(const char* where) const;
  const std::vector<Value>& as_array(const char* where) const;

  // A member of an object: `at` raises if it is missing, `find` gives null.
  const Value& at(const char* key) const;
  const Value* find(const char* key) const;
  // Raises for a member that is none of `keys`: what it would mean is unknown here, so it may not
  // be passed over.
  void check_members(std::initializer_list<const char*> keys, const char* where) const;
};

struct Limits {
  std::size_t bytes = 64u << 20;
  int depth = 64;
  std::size_t values = 4u << 20;
};

// Parses one value that fills the whole text. Raises InternalError with the byte offset for
// anything that is not JSON (RFC 8259), duplicate keys, integers outside int64, invalid UTF-8, or
// what exceeds the limits.
Value parse(std::string_view text, const Limits& limits = Limits());

// Appends `text` as a quoted JSON string.
void append_quoted(std::string& out, std::string_view text);

}  // namespace tileops::json
