// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/sha256.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>

#include <weft/comm/store/sha256.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_INLINE void Sha256::update(std::string_view bytes) {
  length_ += bytes.size();
  while (!bytes.empty()) {
    const std::size_t taken = std::min(bytes.size(), block_.size() - filled_);
    std::memcpy(block_.data() + filled_, bytes.data(), taken);
    filled_ += taken;
    bytes.remove_prefix(taken);
    if (filled_ == block_.size()) compress();
  }
}

WEFT_INLINE Digest Sha256::digest() {
  const std::uint64_t bits = length_ * 8;
  block_[filled_++] = 0x80;
  if (filled_ > 56) {
    std::memset(block_.data() + filled_, 0, block_.size() - filled_);
    compress();
  }
  std::memset(block_.data() + filled_, 0, 56 - filled_);
  for (std::size_t i = 0; i < 8; ++i) block_[56 + i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
  compress();
  Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<unsigned char>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

WEFT_INLINE void Sha256::compress() {
  static constexpr std::uint32_t k[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
      0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
      0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
      0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
      0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
      0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  std::uint32_t w[64];
  for (std::size_t i = 0; i < 16; ++i)
    w[i] = std::uint32_t(block_[4 * i]) << 24 | std::uint32_t(block_[4 * i + 1]) << 16 | std::uint32_t(block_[4 * i + 2]) << 8 |
           std::uint32_t(block_[4 * i + 3]);
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] + (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + k[i] + w[i];
    const std::uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::uint32_t add[8] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += add[i];
  filled_ = 0;
}

WEFT_INLINE Hmac::Hmac(std::string_view key) {
  std::array<char, 64> padded{};
  if (key.size() > padded.size()) {
    const Digest short_key = sha256(key);
    std::memcpy(padded.data(), short_key.data(), short_key.size());
  } else {
    key.copy(padded.data(), padded.size());
  }
  std::array<char, 64> inner = padded, outer = padded;
  for (char& c : inner) c = char(c ^ 0x36);
  for (char& c : outer) c = char(c ^ 0x5c);
  inner_.update(std::string_view(inner.data(), inner.size()));
  outer_.update(std::string_view(outer.data(), outer.size()));
}

WEFT_INLINE Digest Hmac::operator()(std::string_view bytes) const {
  Sha256 hash = inner_;
  hash.update(bytes);
  const Digest first = hash.digest();
  Sha256 second = outer_;
  second.update(std::string_view(reinterpret_cast<const char*>(first.data()), first.size()));
  return second.digest();
}

WEFT_INLINE bool equal_in_constant_time(const Digest& a, const Digest& b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= unsigned(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace weft::comm::store
