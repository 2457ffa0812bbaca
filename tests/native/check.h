// What the C++ unit tests share: checks that say where they failed, and errors as text.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"

namespace check {

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

struct Register {
  Register(const char* name, void (*body)()) { tests().push_back({name, body}); }
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  std::exit(1);
}

// The message of the tileops error that `body` raises; empty if it raises none.
template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const tileops::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace check

#define TEST(name)                                     \
  static void name();                                  \
  static check::Register register_##name(#name, name); \
  static void name()
#define CHECK(condition)                                           \
  do {                                                             \
    if (!(condition)) check::fail(__FILE__, __LINE__, #condition); \
  } while (false)
#define CHECK_ERROR(text, ...)                                                  \
  do {                                                                          \
    const std::string got = check::error_of([&] { (void)(__VA_ARGS__); });      \
    if (got.find(text) == std::string::npos)                                    \
      check::fail(__FILE__, __LINE__,                                           \
                  std::string("expected '") + (text) + "', got '" + got + "'"); \
  } while (false)
