// SHA-256 (FIPS 180-4), by which the bytes of a bundle are known.
#pragma once

#include <string>
#include <string_view>

namespace tileops {

// The digest of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace tileops
