// Tests of the readers of text: JSON, host programs, digests.
#include <cstdint>
#include <limits>

#include "check.h"
#include "core/files.h"
#include "core/host_program.h"
#include "core/json.h"
#include "core/sha256.h"

using namespace tileops;

TEST(json_values) {
  const json::Value v = json::parse(
      R"( {"a": [1, -2, 0, 1.5, 2e3, -0.0], "t": true, "n": null, "s": "x\n\u00e9\ud83d\ude00\\"} )");
  CHECK(v.at("a").items.size() == 6);
  CHECK(v.at("a").items[1].as_int("a") == -2);
  CHECK(v.at("a").items[4].as_double("a") == 2000);
  CHECK(v.at("t").as_bool("t"));
  CHECK(v.at("n").is_null());
  CHECK(v.at("s").as_string("s") == "x\n\xc3\xa9\xf0\x9f\x98\x80\\");
  CHECK(v.find("missing") == nullptr);
  CHECK_ERROR("missing", v.at("missing"));
  CHECK_ERROR("expected integer, got string", v.at("s").as_int("s"));
  CHECK_ERROR("a", v.at("a").items[0].as_int_in(2, 3, "a"));
}

TEST(json_integers_are_exact) {
  CHECK(json::parse("9223372036854775807").as_int("x") == INT64_MAX);
  CHECK(json::parse("-9223372036854775808").as_int("x") == INT64_MIN);
  CHECK_ERROR("outside 64 bits", json::parse("9223372036854775808"));
}

TEST(json_refuses_what_is_no_json) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "[1,]",
                           "{\"a\":1,}",
                           "{\"a\" 1}",
                           "[1 2]",
                           "01",
                           "+1",
                           "1.",
                           ".5",
                           "1e",
                           "nul",
                           "truE",
                           "\"",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "\"\\ud800\\u0041\"",
                           "\"\x01\"",
                           "\"\xff\"",
                           "\"\xc0\x80\"",
                           "\"\xed\xa0\x80\"",
                           "\"\xf4\x90\x80\x80\"",
                           "\"\xe2\x82",
                           "1 1",
                           "{\"a\":1,\"a\":2}",
                           "NaN",
                           "Infinity",
                           "{1:2}",
                           "'a'"})
    CHECK_ERROR("not valid JSON at byte", json::parse(text));
  // A byte of zero is neither the end nor a space.
  CHECK_ERROR("not valid JSON", json::parse(std::string_view("1\0", 2)));
  CHECK_ERROR("not valid JSON", json::parse(std::string_view("\"a\0\"", 4)));
}

TEST(json_limits) {
  json::Limits limits;
  limits.depth = 3;
  CHECK_ERROR("nested too deeply", json::parse("[[[[[]]]]]", limits));
  limits.values = 3;
  CHECK_ERROR("too many values", json::parse("[1,2,3]", limits));
  limits.bytes = 2;
  CHECK_ERROR("too long", json::parse("[1]", limits));
  std::string deep(100000, '[');
  CHECK_ERROR("nested too deeply", json::parse(deep));
}

TEST(json_quoting_reads_back) {
  std::string text;
  for (int c = 0; c < 128; ++c) text += static_cast<char>(c);
  std::string quoted;
  json::append_quoted(quoted, text);
  CHECK(json::parse(quoted).as_string("x") == text);
}

static int64_t evaluate(const char* op, int64_t a, int64_t b) {
  const json::Value value = json::parse(
      std::string(R"({"inputs": ["size:0", "size:1"], "code": [[")") + op + R"(", 0, 1]]})");
  const HostProgram program = HostProgram::from_json(&value);
  int64_t slots[3] = {a, b, 0};
  program.evaluate(slots, "f");
  return slots[2];
}

TEST(host_program_division) {
  for (int64_t a = -7; a <= 7; ++a) {
    for (int64_t b : {-3, -2, -1, 1, 2, 3}) {
      const int64_t floor = evaluate("floordiv", a, b), mod = evaluate("floormod", a, b);
      CHECK(floor * b + mod == a);
      CHECK(mod == 0 || (mod < 0) == (b < 0));
      CHECK(evaluate("truncdiv", a, b) == a / b);
      CHECK(evaluate("truncmod", a, b) == a % b);
    }
  }
  CHECK_ERROR("f: a size expression of this call divides by zero", evaluate("floordiv", 1, 0));
  CHECK_ERROR("divides by zero", evaluate("truncmod", 1, 0));
  CHECK_ERROR("overflow", evaluate("floordiv", INT64_MIN, -1));
  CHECK(evaluate("floormod", INT64_MIN, -1) == 0);
}

TEST(host_program_overflow) {
  CHECK_ERROR("overflow 64-bit", evaluate("add", INT64_MAX, 1));
  CHECK_ERROR("overflow", evaluate("sub", INT64_MIN, 1));
  CHECK_ERROR("overflow", evaluate("mul", INT64_MAX, 2));
  CHECK_ERROR("overflow", evaluate("shl", 1, 64));
  CHECK_ERROR("overflow", evaluate("shl", 1, -1));
  CHECK_ERROR("overflow", evaluate("shl", INT64_MAX, 1));
  CHECK(evaluate("shl", -1, 63) == INT64_MIN);
  CHECK(evaluate("shr", -8, 1) == -4);
  CHECK(evaluate("mul", INT64_MIN, 1) == INT64_MIN);
}

TEST(host_program_refuses_malformed_code) {
  const char* rows[][2] = {
      {R"({"inputs": ["size"], "code": []})", "input 'size'"},
      {R"({"inputs": ["size:-1"], "code": []})", "input 'size:-1'"},
      {R"({"inputs": ["size:1x"], "code": []})", "input 'size:1x'"},
      {R"({"inputs": ["host:colour"], "code": []})", "input 'host:colour'"},
      {R"({"inputs": ["size:0"], "code": [["add", 0, 1]]})", "host.code: 1 is outside 0..0"},
      {R"({"inputs": ["size:0"], "code": [["add", 0]]})", "wrong length"},
      {R"({"inputs": ["size:0"], "code": [["power", 0, 0]]})", "operation 'power'"},
      {R"({"inputs": [], "code": [["const", 1, 2]]})", "wrong length"},
      {R"({"inputs": [], "code": [[]]})", "empty host instruction"},
      {R"({"inputs": []})", "'code' is missing"},
  };
  for (const auto& row : rows) {
    const json::Value value = json::parse(row[0]);
    CHECK_ERROR(row[1], HostProgram::from_json(&value));
  }
}

TEST(host_program_has_a_limit) {
  std::string inputs, code;
  for (int i = 0; i < 5000; ++i) {
    inputs += std::string(i == 0 ? "" : ",") + "\"size:0\"";
    code += std::string(i == 0 ? "" : ",") + "[\"const\", 1]";
  }
  const json::Value many = json::parse("{\"inputs\": [" + inputs + "], \"code\": []}");
  CHECK_ERROR("too long", HostProgram::from_json(&many));
  const json::Value steps = json::parse("{\"inputs\": [], \"code\": [" + code + "]}");
  CHECK_ERROR("too long", HostProgram::from_json(&steps));
}

TEST(host_program_describes_shared_steps_in_bounded_text) {
  std::string code = "[\"add\", 0, 0]";
  for (int i = 1; i < 64; ++i)
    code += ",[\"add\", " + std::to_string(i) + ", " + std::to_string(i) + "]";
  const json::Value value = json::parse("{\"inputs\": [\"size:0\"], \"code\": [" + code + "]}");
  const HostProgram program = HostProgram::from_json(&value);
  CHECK(program.describe(1, {"N"}, {}) == "N + N");
  CHECK(program.describe(64, {"N"}, {}).size() < 4096);
}

TEST(sha256_of_the_standards_examples) {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256_hex(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(file_facts) {
  CHECK_ERROR("64 hexadecimal", FileFact::from_json(json::parse(R"({"size": 1, "sha256": "ab"})")));
  CHECK_ERROR("size", FileFact::from_json(json::parse(R"({"size": -1, "sha256": ""})")));
}
