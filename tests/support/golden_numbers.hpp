// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers as golden/fields_models.py makes them, for models that are compared with PyTorch or timed beside it.
//
//   golden_values(batch[now].resize(count, {3, 8, 8}), 1000, first, 3 * 64);

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft_test {

/// fields_models.py's numbers(key, ...)[place], in [-1, 1): multiples of 2^-20, which float holds.
inline double golden_number(std::uint64_t key, std::uint64_t place) {
  constexpr std::uint64_t mask = 0xffffffff;
  std::uint64_t mixed = (place * 2654435761u + key * 40503 * 65537) & mask;
  mixed = ((mixed ^ (mixed >> 15)) * 2246822519u) & mask;
  mixed = ((mixed ^ (mixed >> 13)) * 3266489917u) & mask;
  return (double(mixed >> 11) - 1048576) / 1048576;
}
/// The values of samples from `first` on, of `width` numbers each.
inline void golden_values(std::span<float> values, std::uint64_t key, std::size_t first, std::size_t width) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = float(golden_number(key, first * width + i));
}

}  // namespace weft_test
