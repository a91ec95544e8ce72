// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/sort.hpp weft/kernels/order_along.hpp weft/kernels/detail/radix_sort.hpp
// Elements in order: values and places against std::stable_sort with equal elements and NaN, derivatives, one rank over dp and
// tp, and what is refused.

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include <weft/kernels/detail/radix_sort.hpp>
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

/// The keys of hosts against the heaps of other devices, which compare the numbers.
template <class T>
void check_keys(const std::vector<T>& numbers, std::size_t extent, std::size_t inner) {
  DefaultDevice device;
  const std::size_t outer = numbers.size() / extent / inner;
  for (const bool descending : {false, true})
    for (const std::size_t count : {std::size_t(2), extent / 9, extent / 2, extent}) {
      const std::size_t ordered = outer * count * inner;
      std::vector<T> values(ordered), wanted(ordered);
      std::vector<std::int32_t> places(ordered, -1), wanted_places(ordered, -2);
      const kernels::Along along{outer, extent, inner};
      kernels::order_along(device, along, count, descending, numbers.data(), values.data(), places.data());
      kernels::detail::order_by_heaps(device, {"sort", 0}, along, count, descending, numbers.data(), wanted.data(),
                                      wanted_places.data());
      CHECK(places == wanted_places);
      CHECK(std::memcmp(values.data(), wanted.data(), ordered * sizeof(T)) == 0);
    }
}
/// Bit patterns of all kinds: signs, infinities, NaN, subnormal numbers and both zeros.
template <class T>
std::vector<T> patterns(std::size_t n) {
  std::vector<T> out(n);
  std::uint64_t state = 1;
  for (T& value : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t kind = state >> 60, any = std::rotl(state, 23);
    const std::uint64_t bits = kind == 15 ? any & 0x8000800080008000u : any;  // zeros, or any
    std::memcpy(&value, reinterpret_cast<const char*>(&bits) + sizeof(bits) - sizeof(T), sizeof(T));
    if constexpr (!std::is_integral_v<T>) {
      const bool negative = (any & 1) != 0;
      if (kind == 14) value = T(negative ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity());
      if (kind == 13) value = T(negative ? -std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::quiet_NaN());
      if (kind < 6) value = T((negative ? -1.0f : 1.0f) * float(any >> 58));  // ordinary ones, many of them equal
    }
  }
  if constexpr (!std::is_integral_v<T>) {
    const auto has = [&](auto&& wanted) { return std::any_of(out.begin(), out.end(), [&](T x) { return wanted(double(x)); }); };
    CHECK(has([](double x) { return std::isnan(x); }));
    CHECK(has([](double x) { return std::isinf(x) && x < 0; }));
    CHECK(has([](double x) { return std::isinf(x) && x > 0; }));
    CHECK(has([](double x) { return x < -1 && x > -100; }));
  }
  return out;
}

}  // namespace

TEST_CASE("keys of hosts have the order of the numbers") {
  const auto check = [](auto type) {
    using T = decltype(type);
    check_keys(patterns<T>(2 * 90 * 3), 90, 3);
    check_keys(patterns<T>(2000), 1000, 1);
    check_keys(patterns<T>(2 * 36), 36, 1);
  };
  check(float());
  check(double());
  check(bfloat16());
  check(float16());
  check(std::uint8_t());
  check(std::int32_t());
  check(std::int64_t());
  using kernels::detail::sort_key;
  CHECK(sort_key(0.0f, false) == sort_key(-0.0f, false));
  using Limits = std::numeric_limits<double>;
  CHECK(sort_key(Limits::infinity(), false) < sort_key(Limits::quiet_NaN(), false));
  CHECK(sort_key(-Limits::quiet_NaN(), true) == 0);
}

TEST_CASE("elements in order against std::stable_sort") {
  for (const SortOrder order : {SortOrder::ascending, SortOrder::descending})
    for (const std::size_t extent : {1, 2, 3, 8, 31, 48, 100})
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
  Rehearsal notes;  // memory is only addresses
  DefaultDevice rehearsed;
  rehearsed.rehearse(notes);
  const Tensor<float, weft_test::Exec> longest(rehearsed, {2, (std::size_t(1) << 31) - 1}),
      wide(rehearsed, {2, std::size_t(1) << 31});
  CHECK(sort<1>(longest).first.shape() == longest.shape());
  CHECK(max<1>(longest).shape() == Shape{2});
  const std::string why = "([2, 2147483648]): 2147483648 elements, and std::int32_t has places for 2147483647";
  CHECK(refusal([&] { sort<1>(wide); }) == "weft: sort" + why);
  CHECK(refusal([&] { max<1>(wide); }) == "weft: max" + why);
}
