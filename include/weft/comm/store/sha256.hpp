// SPDX-License-Identifier: Apache-2.0
#pragma once
// SHA-256 (FIPS 180-4) and HMAC (RFC 2104) for the handshake of the store and the heads of frames. They hash a few hundred bytes
// a connection and 32 bytes a frame, which does not justify a dependency on a cryptographic library.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <weft/core/standard.hpp>

namespace weft::comm::store {

using Digest = std::array<unsigned char, 32>;

class Sha256 {
 public:
  void update(std::string_view bytes);
  Digest digest();

 private:
  void compress();

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> block_{};
  std::size_t filled_ = 0;
  std::uint64_t length_ = 0;
};

inline Digest sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.digest();
}

/// HMAC-SHA-256 with one key for many messages: the two blocks that depend only on the key are hashed once.
class Hmac {
 public:
  explicit Hmac(std::string_view key);
  Digest operator()(std::string_view bytes) const;

 private:
  Sha256 inner_, outer_;
};

inline Digest hmac_sha256(std::string_view key, std::string_view bytes) { return Hmac(key)(bytes); }

/// Takes the same time wherever the digests differ.
bool equal_in_constant_time(const Digest& a, const Digest& b);

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/sha256_impl.hpp>
#endif
