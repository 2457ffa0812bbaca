// The JSON reader's implementation: one pass, no recursion deeper than the limit.
#include "core/json.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace tileops::json {
namespace {

const char* type_name(Type type) {
  static constexpr const char* kNames[] = {"null",   "bool",  "integer", "number",
                                           "string", "array", "object"};
  return kNames[static_cast<int>(type)];
}

[[noreturn]] void wrong_type(const char* where, const char* expected, Type got) {
  raise(ErrorKind::kInternal, where, ": expected ", expected, ", got ", type_name(got));
}

class Parser {
 public:
  Parser(std::string_view text, const Limits& limits)
      : cursor_(text.data()),
        begin_(text.data()),
        end_(text.data() + text.size()),
        limits_(limits) {}

  Value run() {
    if (static_cast<std::size_t>(end_ - begin_) > limits_.bytes) fail("text too long");
    Value value = parse_value(0);
    skip_space();
    if (cursor_ != end_) fail("text after the value");
    return value;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    raise(ErrorKind::kInternal, "not valid JSON at byte ", cursor_ - begin_, ": ", what);
  }

  void skip_space() {
    while (cursor_ != end_ &&
           (*cursor_ == ' ' || *cursor_ == '\n' || *cursor_ == '\t' || *cursor_ == '\r'))
      ++cursor_;
  }

  char peek() const { return cursor_ == end_ ? '\0' : *cursor_; }

  void expect(char c, const char* what) {
    skip_space();
    if (peek() != c) fail(what);
    ++cursor_;
  }

  bool take_word(const char* word) {
    std::size_t length = std::strlen(word);
    if (static_cast<std::size_t>(end_ - cursor_) < length ||
        std::memcmp(cursor_, word, length) != 0)
      return false;
    cursor_ += length;
    return true;
  }

  Value parse_value(int depth) {
    if (depth > limits_.depth) fail("nested too deeply");
    if (++values_ > limits_.values) fail("too many values");
    skip_space();
    Value value;
    switch (peek()) {
      case '{':
        parse_object(value, depth);
        break;
      case '[':
        parse_array(value, depth);
        break;
      case '"':
        value.type = Type::kString;
        value.text = parse_string();
        break;
      case 't':
      case 'f':
        parse_bool(value);
        break;
      case 'n':
        if (!take_word("null")) fail("unknown word");
        break;
      default:
        parse_number(value);
    }
    return value;
  }

  void parse_bool(Value& value) {
    value.type = Type::kBool;
    value.boolean = peek() == 't';
    if (!take_word(value.boolean ? "true" : "false")) fail("unknown word");
  }

  void parse_array(Value& value, int depth) {
    value.type = Type::kArray;
    ++cursor_;
    skip_space();
    if (peek() == ']') {
      ++cursor_;
      return;
    }
    for (;;) {
      value.items.push_back(parse_value(depth + 1));
      skip_space();
      if (peek() == ']') break;
      expect(',', "expected , or ] in an array");
    }
    ++cursor_;
  }

  void parse_object(Value& value, int depth) {
    value.type = Type::kObject;
    ++cursor_;
    skip_space();
    if (peek() == '}') {
      ++cursor_;
      return;
    }
    for (;;) {
      skip_space();
      if (peek() != '"') fail("expected a key");
      std::string key = parse_string();
      if (value.find(key.c_str()) != nullptr) fail("duplicate key");
      expect(':', "expected : after a key");
      Value member = parse_value(depth + 1);
      value.members.emplace_back(std::move(key), std::move(member));
      skip_space();
      if (peek() == '}') break;
      expect(',', "expected , or } in an object");
    }
    ++cursor_;
  }

  unsigned parse_hex4() {
    unsigned value = 0;
    for (int i = 0; i < 4; ++i) {
      char c = peek();
      unsigned digit;
      if (c >= '0' && c <= '9')
        digit = static_cast<unsigned>(c - '0');
      else if (c >= 'a' && c <= 'f')
        digit = static_cast<unsigned>(c - 'a' + 10);
      else if (c >= 'A' && c <= 'F')
        digit = static_cast<unsigned>(c - 'A' + 10);
      else
        fail("bad \\u escape");
      value = value * 16 + digit;
      ++cursor_;
    }
    return value;
  }

  static void append_utf8(std::string& out, unsigned point) {
    if (point < 0x80) {
      out += static_cast<char>(point);
    } else if (point < 0x800) {
      out += static_cast<char>(0xC0 | (point >> 6));
      out += static_cast<char>(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
      out += static_cast<char>(0xE0 | (point >> 12));
      out += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (point & 0x3F));
    } else {
      out += static_cast<char>(0xF0 | (point >> 18));
      out += static_cast<char>(0x80 | ((point >> 12) & 0x3F));
      out += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (point & 0x3F));
    }
  }

  void parse_escape(std::string& out) {
    ++cursor_;
    char c = peek();
    ++cursor_;
    switch (c) {
      case '"':
        out += '"';
        return;
      case '\\':
        out += '\\';
        return;
      case '/':
        out += '/';
        return;
      case 'b':
        out += '\b';
        return;
      case 'f':
        out += '\f';
        return;
      case 'n':
        out += '\n';
        return;
      case 'r':
        out += '\r';
        return;
      case 't':
        out += '\t';
        return;
      case 'u':
        break;
      default:
        --cursor_;
        fail("unknown escape");
    }
    unsigned point = parse_hex4();
    if (point >= 0xDC00 && point < 0xE000) fail("lone surrogate");
    if (point >= 0xD800 && point < 0xDC00) {
      if (!take_word("\\u")) fail("lone surrogate");
      unsigned low = parse_hex4();
      if (low < 0xDC00 || low >= 0xE000) fail("lone surrogate");
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(out, point);
  }

  // Copies one well-formed UTF-8 sequence (Unicode 15, table 3-7).
  void copy_utf8(std::string& out) {
    const unsigned char lead = static_cast<unsigned char>(*cursor_);
    int extra;
    unsigned char low = 0x80, high = 0xBF;
    if (lead < 0x80)
      extra = 0;
    else if (lead >= 0xC2 && lead <= 0xDF)
      extra = 1;
    else if (lead >= 0xE0 && lead <= 0xEF)
      extra = 2;
    else if (lead >= 0xF0 && lead <= 0xF4)
      extra = 3;
    else
      fail("invalid UTF-8");
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    if (end_ - cursor_ <= extra) fail("invalid UTF-8");
    for (int i = 1; i <= extra; ++i) {
      const unsigned char next = static_cast<unsigned char>(cursor_[i]);
      if (next < low || next > high) fail("invalid UTF-8");
      low = 0x80;
      high = 0xBF;
    }
    out.append(cursor_, static_cast<std::size_t>(extra) + 1);
    cursor_ += extra + 1;
  }

  std::string parse_string() {
    std::string out;
    ++cursor_;
    for (;;) {
      if (cursor_ == end_) fail("string without an end");
      const unsigned char c = static_cast<unsigned char>(*cursor_);
      if (c == '"') break;
      if (c < 0x20) fail("control character in a string");
      if (c == '\\')
        parse_escape(out);
      else
        copy_utf8(out);
    }
    ++cursor_;
    return out;
  }

  bool skip_digits() {
    const char* start = cursor_;
    while (peek() >= '0' && peek() <= '9') ++cursor_;
    return cursor_ != start;
  }

  void parse_number(Value& value) {
    const char* start = cursor_;
    if (peek() == '-') ++cursor_;
    if (peek() == '0')
      ++cursor_;
    else if (!skip_digits())
      fail("expected a value");
    bool is_integer = true;
    if (peek() == '.') {
      is_integer = false;
      ++cursor_;
      if (!skip_digits()) fail("expected a digit");
    }
    if (peek() == 'e' || peek() == 'E') {
      is_integer = false;
      ++cursor_;
      if (peek() == '+' || peek() == '-') ++cursor_;
      if (!skip_digits()) fail("expected a digit");
    }
    const std::string digits(start, cursor_);
    errno = 0;
    if (is_integer) {
      value.type = Type::kInt;
      value.integer = std::strtoll(digits.c_str(), nullptr, 10);
      if (errno == ERANGE) fail("integer outside 64 bits");
    } else {
      // strtod follows the C locale set by the process; a locale with another point would stop
      // early.
      char* stop = nullptr;
      value.type = Type::kDouble;
      value.real = std::strtod(digits.c_str(), &stop);
      if (*stop != '\0') fail("number not readable in this locale");
    }
  }

  const char* cursor_;
  const char* begin_;
  const char* end_;
  Limits limits_;
  std::size_t values_ = 0;
};

}  // namespace

bool Value::as_bool(const char* where) const {
  if (type != Type::kBool) wrong_type(where, "bool", type);
  return boolean;
}

int64_t Value::as_int(const char* where) const {
  if (type != Type::kInt) wrong_type(where, "integer", type);
  return integer;
}

int64_t Value::as_int_in(int64_t low, int64_t high, const char* where) const {
  const int64_t value = as_int(where);
  if (value < low || value > high) {
    raise(ErrorKind::kInternal, where, ": ", value, " is outside ", low, "..", high);
  }
  return value;
}

double Value::as_double(const char* where) const {
  if (type == Type::kInt) return static_cast<double>(integer);
  if (type != Type::kDouble) wrong_type(where, "number", type);
  return real;
}

const std::string& Value::as_string(const char* where) const {
  if (type != Type::kString) wrong_type(where, "string", type);
  return text;
}

const std::vector<Value>& Value::as_array(const char* where) const {
  if (type != Type::kArray) wrong_type(where, "array", type);
  return items;
}

const Value* Value::find(const char* key) const {
  if (type != Type::kObject) return nullptr;
  for (const auto& member : members) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

void Value::check_members(std::initializer_list<const char*> keys, const char* where) const {
  for (const auto& member : members) {
    const bool known =
        std::any_of(keys.begin(), keys.end(), [&](const char* key) { return member.first == key; });
    if (!known) raise(ErrorKind::kInternal, where, ": unknown member '", member.first, "'");
  }
}

const Value& Value::at(const char* key) const {
  if (type != Type::kObject) wrong_type(key, "an object around it", type);
  const Value* value = find(key);
  if (value == nullptr) raise(ErrorKind::kInternal, "'", key, "' is missing");
  return *value;
}

Value parse(std::string_view text, const Limits& limits) {
  return Parser(text, limits).run();
}

void append_quoted(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace tileops::json
