// SPDX-License-Identifier: Apache-2.0
#pragma once
// Host numbers for checks of layers: random values, their comparison, and the error that refuses a layer.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/philox.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::testing::detail {

using Device = DefaultDevice;
using Exec = Device::execution_space;
using Numbers = std::vector<double>;
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Numbers in (-1, 1) by global index, the same on every rank.
inline Numbers numbers(std::uint64_t key, std::size_t count) {
  Numbers values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 2.0 * Philox::uniform(key, i) - 1.0;
  return values;
}

inline double largest(const Numbers& values) {
  double scale = 0;
  for (const double value : values) scale = std::max(scale, std::abs(value));
  return scale;
}

/// The largest difference relative to the largest element of `expected`; infinite if an element is NaN.
inline double distance(const Numbers& mine, const Numbers& expected) {
  if (mine.size() != expected.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const double difference = std::abs(mine[i] - expected[i]);
    if (!(difference <= worst)) worst = std::isfinite(difference) ? difference : INFINITY;
  }
  return worst == 0 ? 0 : worst / std::max(largest(expected), 1e-12);
}
inline bool finite(const Numbers& values) { return std::isfinite(distance(values, Numbers(values.size(), 0.0))); }
inline bool same_bits(const Numbers& a, const Numbers& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}
inline Numbers sum_of(Numbers a, const Numbers& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

[[noreturn]] WEFT_COLD inline void refuse(const std::string& text) { throw Error("check_layer: " + text); }

/// f(tensor), or, for an output of several tensors, the tuple of f's results in order.
template <class Y, class F>
auto each_tensor(const Y& y, F&& f) {
  if constexpr (AnyTensor<Y>) return f(y);
  else
    return std::apply([&](const auto&... part) { return std::tuple<decltype(each_tensor(part, f))...>{each_tensor(part, f)...}; },
                      y);
}

}  // namespace weft::testing::detail
