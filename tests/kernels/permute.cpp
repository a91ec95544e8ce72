// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/permute.hpp weft/kernels/expand.hpp
// Every permutation of up to six dims and every pattern of repeated dims, compared with loops over indices.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include <weft/kernels/expand.hpp>
#include <weft/kernels/permute.hpp>

#include "kernels/support.hpp"

using namespace weft;

namespace {

using Extents = std::array<std::size_t, 6>;

std::size_t product(const Extents& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::size_t(1), std::multiplies<>());
}
/// The index of each dim of element `at`, of which the last dim is the fastest.
Extents index_of(const Extents& extents, std::size_t at) {
  Extents index{};
  for (std::size_t d = 6; d-- > 0; at /= extents[d]) index[d] = at % extents[d];
  return index;
}
std::size_t place_of(const Extents& extents, const Extents& index) {
  std::size_t at = 0;
  for (std::size_t d = 0; d < 6; ++d) at = at * extents[d] + index[d];
  return at;
}
std::vector<int> counted(std::size_t size) {
  std::vector<int> values(size);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

}  // namespace

TEST_CASE("arrays with gaps, by their strides, to another type") {
  DefaultDevice device;
  // Extents, and for each array the order of its dims in memory (fastest first) with the gap that each leaves.
  struct Case {
    std::array<std::size_t, 3> extents;
    std::array<std::size_t, 3> from_order, to_order;
    std::size_t from_gap, to_gap;
  };
  for (const auto& [extents, from_order, to_order, from_gap, to_gap] :
       {Case{{5, 40, 67}, {0, 1, 2}, {2, 1, 0}, 0, 0}, Case{{5, 40, 67}, {0, 1, 2}, {2, 1, 0}, 3, 0},
        Case{{40, 3, 35}, {2, 1, 0}, {0, 2, 1}, 0, 2}, Case{{7, 33, 34}, {1, 2, 0}, {2, 0, 1}, 1, 1},
        Case{{4, 1, 9}, {2, 1, 0}, {2, 1, 0}, 2, 5}, Case{{2, 3, 4}, {2, 1, 0}, {2, 1, 0}, 0, 0},
        Case{{2, 0, 4}, {2, 1, 0}, {0, 1, 2}, 0, 0}}) {
    const auto strides_of = [&extents = extents](const auto& order, std::size_t gap) {
      std::array<std::size_t, 3> strides{};
      std::size_t stride = gap + 1;
      for (const std::size_t dim : order) strides[dim] = stride, stride *= extents[dim] + gap;
      return std::pair(strides, stride);
    };
    const auto [from, from_size] = strides_of(from_order, from_gap);
    const auto [to, to_size] = strides_of(to_order, to_gap);
    const std::vector<int> x = counted(from_size);
    std::vector<double> y(to_size, -1), expected(to_size, -1);
    for (std::size_t i = 0; i < extents[0]; ++i)
      for (std::size_t j = 0; j < extents[1]; ++j)
        for (std::size_t k = 0; k < extents[2]; ++k)
          expected[i * to[0] + j * to[1] + k * to[2]] = x[i * from[0] + j * from[1] + k * from[2]];
    kernels::permute(device, kernels::Permutation(3, extents.data(), from.data(), to.data()), x.data(), y.data());
    CHECK(y == expected);
  }
}

TEST_CASE("permutations of six dims") {
  DefaultDevice device;
  for (const Extents& extents : {Extents{2, 3, 4, 2, 3, 2}, Extents{1, 5, 1, 34, 1, 3}, Extents{1, 1, 1, 1, 37, 41},
                                 Extents{1, 1, 1, 1, 1, 1}, Extents{3, 1, 2, 0, 2, 2}}) {
    const std::vector<int> x = counted(product(extents));
    std::array<int, 6> dims{0, 1, 2, 3, 4, 5};
    std::size_t wrong = 0;
    do {
      Extents result;
      for (std::size_t d = 0; d < 6; ++d) result[d] = extents[std::size_t(dims[d])];
      std::vector<int> y(x.size(), 0);
      kernels::permute(device, kernels::Permutation(6, extents.data(), dims.data()), x.data(), y.data());
      for (std::size_t at = 0; at < y.size(); ++at) {
        const Extents index = index_of(result, at);
        Extents from;
        for (std::size_t d = 0; d < 6; ++d) from[std::size_t(dims[d])] = index[d];
        wrong += y[at] != x[place_of(extents, from)];
      }
    } while (std::next_permutation(dims.begin(), dims.end()));
    CHECK(wrong == 0);
  }
}

TEST_CASE("dims of one element are repeated, in every pattern of six") {
  DefaultDevice device;
  const Extents to{2, 3, 2, 2, 3, 4};
  for (unsigned pattern = 0; pattern < 64; ++pattern) {
    Extents from = to;
    for (std::size_t d = 0; d < 6; ++d)
      if (pattern >> d & 1u) from[d] = 1;
    const std::vector<int> x = counted(product(from));
    std::vector<int> y(product(to), 0);
    kernels::expand<int>(device, from, to, x.data(), y.data());
    std::size_t wrong = 0;
    for (std::size_t at = 0; at < y.size(); ++at) {
      Extents index = index_of(to, at);
      for (std::size_t d = 0; d < 6; ++d) index[d] %= from[d];
      wrong += y[at] != x[place_of(from, index)];
    }
    CHECK(wrong == 0);
  }
}
