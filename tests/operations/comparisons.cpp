// SPDX-License-Identifier: Apache-2.0
// Comparisons: each operator and function against C++'s on numbers and NaN, on tensors and in formulas, and what they refuse.

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/operations/comparisons.hpp>
#include <weft/operations/functions.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::numbers_of;
using weft_test::tensor_of;

namespace {

const double nan = std::numeric_limits<double>::quiet_NaN();
const std::vector<double> left = {-1, 0, 0, 2, 1, nan, nan, 3}, right = {1, 0, -1, 1, 2, 0, nan, nan};

// The mask of a comparison of the numbers above, by C++.
template <class F>
std::vector<double> wanted(F f, bool number) {
  std::vector<double> out;
  for (std::size_t i = 0; i < left.size(); ++i) out.push_back(f(left[i], number ? 1.0 : right[i]) ? 1 : 0);
  return out;
}
template <class T, class F, class G>
void check(F f, G function) {
  DefaultDevice device;
  const auto x = tensor_of<T>(device, {8}, left), y = tensor_of<T>(device, {8}, right);
  CHECK(numbers_of(f(x, y)) == wanted(f, false));
  CHECK(numbers_of(function(x, y)) == wanted(f, false));
  CHECK(numbers_of(f(x, 1.0)) == wanted(f, true));
  CHECK(numbers_of(function(x, 1.0)) == wanted(f, true));
  CHECK(numbers_of(f(1.0, x)) == wanted([&](double a, double b) { return f(b, a); }, true));
}
template <class T>
void check_all() {
  check<T>([](const auto& a, const auto& b) { return a < b; }, [](const auto& a, const auto& b) { return less(a, b); });
  check<T>([](const auto& a, const auto& b) { return a <= b; }, [](const auto& a, const auto& b) { return less_equal(a, b); });
  check<T>([](const auto& a, const auto& b) { return a > b; }, [](const auto& a, const auto& b) { return greater(a, b); });
  check<T>([](const auto& a, const auto& b) { return a >= b; }, [](const auto& a, const auto& b) { return greater_equal(a, b); });
  check<T>([](const auto& a, const auto& b) { return a == b; }, [](const auto& a, const auto& b) { return equal(a, b); });
  check<T>([](const auto& a, const auto& b) { return a != b; }, [](const auto& a, const auto& b) { return not_equal(a, b); });
}

}  // namespace

TEST_CASE("comparisons against those of C++") {
  check_all<double>();
  check_all<bfloat16>();
}

TEST_CASE("whole numbers are compared") {
  DefaultDevice device;
  Tensor<std::int32_t, weft_test::Exec> ids(device, {3});
  copy_from_host(ids, std::span<const std::int32_t>(std::vector<std::int32_t>{7, -1, 7}));
  CHECK(copy_to_host(ids == 7) == std::vector<std::uint8_t>{1, 0, 1});
  CHECK(copy_to_host(ids != ids) == std::vector<std::uint8_t>{0, 0, 0});
  // Numbers with a fraction, and ones that the type lacks.
  using Bits = std::vector<std::uint8_t>;
  const auto bits = [](const auto& mask) { return copy_to_host(mask); };
  CHECK(bits(ids < 7.5) == Bits{1, 1, 1});
  CHECK(bits(ids >= 7.5) == Bits{0, 0, 0});
  CHECK(bits(ids > -0.5) == Bits{1, 0, 1});
  CHECK(bits(ids < 1e10) == Bits{1, 1, 1});
}

TEST_CASE("conditions in formulas, on one rank and on two") {
  const auto everywhere = [](auto f) {
    weft_test::check_rows(f, {4, 6});
    weft_test::check_cut<1>(f, {4, 6});
  };
  everywhere([](const auto& x) { return where(x < 0.1, exp(x), x * x) + where(0.2 >= x, x, x * 3); });
  everywhere([](const auto& x) { return where(x * 2 <= sin(x), 0.5, x * x) - where(x >= -0.2, exp(x), 2); });
  everywhere([](const auto& x) { return where(x == x.detach(), x * x, x) + where(x != 0, x, 1) + x * cast<double>(x > 0); });
}

TEST_CASE("a mask is placed as its operands") {
  using S = Tensor<float, weft_test::Exec, Shard<tp, 1>>;
  using Mask = with_scalar_t<S, std::uint8_t>;
  static_assert(std::is_same_v<decltype(std::declval<S>() < std::declval<S>()), Mask>);
  static_assert(std::is_same_v<decltype(0 < std::declval<S>()), Mask> && std::is_same_v<decltype(std::declval<S>() != 0), Mask>);
  DefaultDevice device;
  const Tensor<float, weft_test::Exec> x(device, {2, 3}), y(device, {3, 2});
  CHECK(weft_test::refusal_of<ShapeError>([&] { (void)(x < y); }) == "weft: less([2, 3], [3, 2]): the shapes differ");
}
