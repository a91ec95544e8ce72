// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checksum of a checkpoint's bytes: 64-bit XXH3 from libxxhash, faster than any disk. The checksum of a whole file equals the
// output of `xxhsum -H3 FILE`.
//
//   detail::Checksum sum;
//   sum.add(bytes, count);
//   detail::hex(sum.value());   // "2d06800538d394c2"

#define XXH_INLINE_ALL
#if defined(__AVX512F__) && !defined(XXH_VECTOR)
#define XXH_VECTOR XXH_AVX2  // gcc 12 warns about its own intrinsics for wider registers, and memory limits the speed anyway
#endif
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <weft/core/standard.hpp>

namespace weft::checkpoint::detail {

inline std::uint64_t checksum_of(const void* bytes, std::size_t count) { return XXH3_64bits(bytes, count); }

/// The checksum of bytes that arrive in pieces.
class Checksum {
 public:
  Checksum() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }
  void add(const void* bytes, std::size_t count) {
    if (count != 0) XXH3_64bits_update(state_.get(), bytes, count);
  }
  std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

/// 16 hexadecimal digits.
inline std::string hex(std::uint64_t value) {
  std::string out(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) out[i] = "0123456789abcdef"[value & 15];
  return out;
}
/// The reverse; false if the text is not 16 digits in lower case.
inline bool from_hex(std::string_view text, std::uint64_t& value) {
  if (text.size() != 16) return false;
  value = 0;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return false;
    value = value << 4 | std::uint64_t(digit);
  }
  return true;
}

}  // namespace weft::checkpoint::detail
