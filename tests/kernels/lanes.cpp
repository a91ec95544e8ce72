// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over the lanes of a register: the order of the additions is part of what a kernel computes, to the bit.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <weft/kernels/detail/sweep.hpp>

using namespace weft::kernels::detail;

TEST_CASE_TEMPLATE("lanes are added by halves, and the largest is found wherever it is", T, float, double) {
  using V = Lanes<T, register_bytes / sizeof(T)>;
  std::uint64_t state = 1;
  for (int trial = 0; trial < 1000; ++trial) {
    T x[V::size], part[V::size];
    for (T& value : x) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = T(std::int64_t(state >> 40) - (1 << 23)) * T(trial % 3 == 0 ? 1e-3 : 1.1) * (state >> 63 ? T(1e4) : T(1));
    }
    std::copy(x, x + V::size, part);
    for (std::size_t half = V::size / 2; half > 0; half /= 2)
      for (std::size_t k = 0; k < half; ++k) part[k] += part[k + half];
    const T sum_of_lanes = sum(V::load(x));
    CHECK(std::memcmp(&sum_of_lanes, &part[0], sizeof(T)) == 0);
    CHECK(largest(V::load(x)) == *std::max_element(x, x + V::size));
  }
  for (std::size_t at = 0; at < V::size; ++at) {
    T x[V::size] = {};
    x[at] = T(1);
    CHECK(largest(V::load(x)) == T(1));
    CHECK(sum(V::load(x)) == T(1));
  }
}
