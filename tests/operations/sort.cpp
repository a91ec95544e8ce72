// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/sort.hpp weft/kernels/order_along.hpp
// Elements in order: values and places against std::stable_sort with equal elements and NaN, derivatives, one rank over dp and
// tp, and what is refused.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include <weft/kernels/order_along.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/sort.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::numbers_of;
using weft_test::tensor_of;

namespace {

const double nan = std::numeric_limits<double>::quiet_NaN();

// The places of a line in order.
std::vector<std::size_t> places_of(const std::vector<double>& line, bool descending) {
  const auto key = [&](std::size_t i) { return std::isnan(line[i]) ? std::numeric_limits<double>::infinity() : line[i]; };
  std::vector<std::size_t> out(line.size());
  std::iota(out.begin(), out.end(), std::size_t(0));
  std::stable_sort(out.begin(), out.end(),
                   [&](std::size_t a, std::size_t b) { return descending ? key(a) > key(b) : key(a) < key(b); });
  return out;
}
// NaN as a number that compares equal to itself.
std::vector<double> comparable(std::vector<double> numbers) {
  for (double& number : numbers)
    if (std::isnan(number)) number = 1e300;
  return numbers;
}

template <class T>
void check_lines(std::size_t outer, std::size_t extent, std::size_t inner, std::size_t count, SortOrder order) {
  DefaultDevice device;
  std::vector<double> numbers = weft_test::waves(outer * extent * inner);
  for (double& number : numbers) number = number > 0.9 ? nan : std::round(4 * number);  // many equal ones, and NaN
  const auto x = tensor_of<T>(device, {outer, extent, inner}, numbers);
  const auto [values, places] = count == extent ? sort<1>(x, order) : topk<1>(x, count, order);
  CHECK(values.shape() == Shape{outer, count, inner});
  std::vector<double> wanted(outer * count * inner);
  std::vector<std::int32_t> wanted_places(wanted.size());
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t i = 0; i < inner; ++i) {
      std::vector<double> line;
      for (std::size_t k = 0; k < extent; ++k) line.push_back(numbers[(o * extent + k) * inner + i]);
      const auto in_order = places_of(line, order == SortOrder::descending);
      for (std::size_t j = 0; j < count; ++j) {
        wanted[(o * count + j) * inner + i] = line[in_order[j]];
        wanted_places[(o * count + j) * inner + i] = std::int32_t(in_order[j]);
      }
    }
  CHECK(comparable(numbers_of(values)) == comparable(wanted));
  CHECK(copy_to_host(places) == wanted_places);
}

}  // namespace

TEST_CASE("elements in order against std::stable_sort") {
  for (const SortOrder order : {SortOrder::ascending, SortOrder::descending})
    for (const std::size_t extent : {1, 2, 3, 8, 31, 100})
      for (const std::size_t count : {std::size_t(0), std::size_t(1), extent / 3, extent}) {
        check_lines<double>(2, extent, 1, count, order);
        check_lines<bfloat16>(2, extent, 3, count, order);
      }
}

TEST_CASE("derivatives of elements in order, on one rank and on two") {
  const auto everywhere = [](auto f) {
    weft_test::check_formula(f, {4, 6});
    weft_test::check_over<Shard<dp, 0>>(f, {4, 6});
    weft_test::check_cut<0, decltype(f)>(f, {4, 6});
  };
  everywhere([](const auto& x) { return exp(sort<1>(sin(x * 3)).first) * x; });
  everywhere([](const auto& x) { return exp(topk<1>(sin(x * 3), 2).first); });
  everywhere([](const auto& x) {
    const auto [values, places] = topk<1>(x * x, 3, SortOrder::ascending);
    return where(places < 2, values * values, values);
  });
}

TEST_CASE("orders that are refused") {
  DefaultDevice device;
  const Tensor<float, weft_test::Exec> x(device, {2, 3});
  const auto refusal = [](auto&& act) { return weft_test::refusal_of<ShapeError>(act); };
  CHECK(refusal([&] { topk<1>(x, 4); }) == "weft: topk([2, 3]): 4 of 3 elements of dim 1");
  CHECK(refusal([&] { sort<2>(x); }) == "weft: sort([2, 3]): there is no dim 2");
}
