// The reader of PTX heads, and the question to the driver.
#include "core/ptx.h"

#include "core/driver.h"

namespace tileops {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// The next word at or after `at`, which moves behind it; `//` comments are passed over.
std::string next_word(const std::string& text, std::size_t& at) {
  while (at < text.size()) {
    if (is_blank(text[at])) {
      ++at;
    } else if (text.compare(at, 2, "//") == 0) {
      at = text.find('\n', at);
      if (at == std::string::npos) at = text.size();
    } else {
      break;
    }
  }
  const std::size_t begin = at;
  while (at < text.size() && !is_blank(text[at])) ++at;
  return text.substr(begin, at - begin);
}

}  // namespace

std::optional<PtxHead> ptx_head(const std::string& bytes) {
  std::size_t at = 0;
  if (next_word(bytes, at) != ".version") return std::nullopt;
  PtxHead head;
  head.version = next_word(bytes, at);
  if (next_word(bytes, at) != ".target") return std::nullopt;
  head.target = next_word(bytes, at);
  const std::size_t comma = head.target.find(',');  // ".target sm_80, debug"
  if (comma != std::string::npos) head.target.resize(comma);
  return head;
}

std::string ptx_and_driver(const PtxHead& head) {
  const int version = driver().version;
  return "PTX .version " + head.version + " for " + head.target + ", the driver is for CUDA " +
         std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string refusal_of_ptx(const std::string& text, int device_index) {
  const std::optional<PtxHead> head = ptx_head(text);
  if (!head) raise(ErrorKind::kArgument, "expected PTX text, which begins with .version");
  const ContextScope context(device_info(device_index));
  const std::string empty =
      ".version " + head->version + "\n.target " + head->target + "\n.address_size 64\n";
  CUmodule module = nullptr;
  const CUresult result = driver().module_load_data_ex(&module, empty.c_str(), 0, nullptr, nullptr);
  if (result == CUDA_SUCCESS) {
    driver().module_unload(module);
    return "";
  }
  return ptx_and_driver(*head) + ": " + driver_words(result);
}

}  // namespace tileops
