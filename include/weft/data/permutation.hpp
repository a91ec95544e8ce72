// SPDX-License-Identifier: Apache-2.0
#pragma once
// A seeded permutation of an epoch's samples. Each value is computed without the others and without memory, so every rank finds
// the samples of any step without communication. A Feistel network with Philox as its round function permutes the numbers with
// enough bits; a value out of range is permuted again until it is in range (cycle walking: Black and Rogaway, Ciphers with
// Arbitrary Finite Domains, 2002). It needs fewer than two evaluations per value on average.
//
//   const data::Permutation order(seed, epoch, samples);
//   const std::size_t sample = order(place);   // each of 0 ... samples - 1 once

#include <bit>
#include <cstdint>

#include <weft/core/philox.hpp>

namespace weft::data {

/// A permutation of 0 ... size - 1, a pure function of (seed, epoch, size).
class Permutation {
 public:
  constexpr Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size)
      : key_(key_of(seed, site_of("data.permutation"), epoch)), size_(size) {
    const int bits = size < 2 ? 0 : std::bit_width(size - 1);  // there are fewer than 2 * size such numbers
    low_bits_ = bits / 2;
    low_mask_ = (std::uint64_t(1) << low_bits_) - 1;
    high_mask_ = (std::uint64_t(1) << (bits - low_bits_)) - 1;
  }

  /// The sample at `place`, which must be below size.
  constexpr std::uint64_t operator()(std::uint64_t place) const {
    if (size_ < 2) return 0;
    do place = permute(place);
    while (place >= size_);
    return place;
  }

 private:
  static constexpr int rounds = 8;

  constexpr std::uint64_t permute(std::uint64_t number) const {
    std::uint64_t low = number & low_mask_, high = number >> low_bits_;
    for (std::uint64_t round = 0; round < rounds; round += 2) {
      high ^= word(low, round) & high_mask_;
      low ^= word(high, round + 1) & low_mask_;
    }
    return high << low_bits_ | low;
  }
  constexpr std::uint64_t word(std::uint64_t half, std::uint64_t round) const { return Philox::draw(key_, half, round).word[0]; }

  std::uint64_t key_, size_, low_mask_ = 0, high_mask_ = 0;
  int low_bits_ = 0;
};

}  // namespace weft::data
