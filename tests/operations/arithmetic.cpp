// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/rules.hpp weft/operations/arithmetic.hpp weft/operations/functions.hpp weft/kernels/functions.hpp
// Formulas of tensors and numbers and functions of each element, written forward-only: derivatives, layouts, NaN and equal
// elements, and the lanes of float and bfloat16 against the C library.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <weft/kernels/functions.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/rules.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::check_cut;
using weft_test::check_rows;
using weft_test::Exec;

namespace {

template <class F>
void check_everywhere(F f) {
  check_rows(f, {4, 6});
  check_cut<1>(f, {4, 6});
}

// f of a tensor of T against the C library, at sizes below, at and above a register's lanes. f is no template argument: this is
// compiled once for a T, not for every function.
template <class T>
using Function = Tensor<T, Exec> (*)(const Tensor<T, Exec>&);
template <class T>
void check_lanes(Function<T> f, double (*expected)(double), double tolerance) {
  DefaultDevice device;
  for (const std::size_t n : {1, 7, 16, 33}) {
    const auto x = weft_test::tensor_of<T>(device, {n}, weft_test::waves(n, 0.3, 4));
    std::vector<double> want;
    for (const double value : weft_test::numbers_of(x)) want.push_back(expected(value));
    CHECK(weft_test::difference(weft_test::numbers_of(f(x)), want) < tolerance);
  }
}
template <class F>
void check_precisions(F f, double (*expected)(double)) {
  check_lanes<double>(f, expected, 1e-14);
  check_lanes<float>(f, expected, 2e-6);
  check_lanes<bfloat16>(f, expected, 8e-3);
}

}  // namespace

TEST_CASE("formulas of tensors and numbers") {
  check_everywhere([](const auto& x) { return (2 + x) / (x * x + 3) - 1 / (2 + x * x) + x / 4 - 3 * x; });
  check_everywhere([](const auto& x) { return -(1 - x) * (x - 0.5) + x; });
  DefaultDevice device;
  const auto x = weft_test::tensor_of<float>(device, {3}, {1, 2, 4});
  CHECK(weft_test::numbers_of((2 + x) * x - x / x) == std::vector<double>{2, 7, 23});
  CHECK(weft_test::numbers_of(8 / x - (1 - x) + -x) == std::vector<double>{7, 3, 1});
}

TEST_CASE("functions of each element") {
  check_everywhere([](const auto& x) { return exp(x) + silu(x) * tanh(x); });
  check_everywhere([](const auto& x) { return log(square(x) + 0.5) - sqrt(exp(x) + 1); });
  check_everywhere([](const auto& x) { return gelu(x) - gelu_erf(x * 3) * sigmoid(x); });
  check_everywhere([](const auto& x) { return relu(x * 2 - 0.3) + clamp(x, -0.4, 0.25) * x; });
  check_everywhere([](const auto& x) { return maximum(x, square(x)) * minimum(x * 2, tanh(x) - 0.1); });
  check_everywhere([](const auto& x) { return where(greater(x, 0.1), exp(x), x * x) + where(greater(x, -x), x, x * 3); });
  check_everywhere([](const auto& x) { return where(greater(x, 0.1), 0.5, x * x) - where(greater(x, -0.2), exp(x), 2); });
  check_precisions([](const auto& x) { return silu(x); }, [](double v) { return v / (1 + std::exp(-v)); });
  check_precisions([](const auto& x) { return gelu_erf(x); }, [](double v) { return v * 0.5 * std::erfc(-v / std::sqrt(2.0)); });
  check_precisions([](const auto& x) { return relu(x); }, [](double v) { return v > 0 ? v : 0; });
  check_precisions([](const auto& x) { return clamp(x, -1, 0.5); }, [](double v) { return v < -1 ? -1 : v > 0.5 ? 0.5 : v; });
  check_precisions([](const auto& x) { return maximum(x, scale(x, -0.5)); }, [](double v) { return std::max(v, -0.5 * v); });
  check_precisions([](const auto& x) { return silu_gradient(x, x); },
                   [](double v) {
                     const double s = 1 / (1 + std::exp(-v));
                     return v * (s + v * s * (1 - s));
                   });
}

TEST_CASE("a value that is used in another precision") {
  weft_test::check_formula([](const auto& x) { return exp(cast<double>(x) * 2); }, {3, 5});
  weft_test::check_formula([](const auto& x) { return x * cast<double>(greater(x, 0)); },
                           {3, 5});  // of whole numbers: a constant
}

TEST_CASE("NaN stays, and equal elements share the gradient") {
  DefaultDevice device;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto x = weft_test::tensor_of<float>(device, {4}, {nan, -2, 3, 1}),
             y = weft_test::tensor_of<float>(device, {4}, {1, nan, 3, 2}),
             g = weft_test::tensor_of<float>(device, {4}, {8, 8, 8, 8});
  const auto first_is_nan = [](const auto& z, std::size_t at) { return std::isnan(weft_test::numbers_of(z)[at]); };
  CHECK(first_is_nan(relu(x), 0));
  CHECK(first_is_nan(clamp(x, -1, 1), 0));
  for (const std::size_t at : {0, 1}) {
    CHECK(first_is_nan(maximum(x, y), at));
    CHECK(first_is_nan(minimum(x, y), at));
  }
  CHECK(weft_test::numbers_of(maximum(x, y))[3] == 2);
  CHECK(weft_test::numbers_of(maximum_gradient(x, y, g))[2] == 4);
  CHECK(weft_test::numbers_of(maximum_gradient(x, y, g))[3] == 0);
  CHECK(weft_test::numbers_of(minimum_gradient(x, y, g))[3] == 8);
  CHECK(weft_test::numbers_of(relu_gradient(relu(weft_test::tensor_of<float>(device, {2}, {0, 2})),
                                            weft_test::tensor_of<float>(device, {2}, {5, 6}))) == std::vector<double>{0, 6});
}

TEST_CASE("placements of formulas") {
  using R = Tensor<float, Exec, Replicated<tp>>;
  using P = Tensor<float, Exec, Partial<tp>>;
  using S = Tensor<float, Exec, Shard<tp, 1>>;
  static_assert(std::is_same_v<decltype(std::declval<R>() * std::declval<P>()), P>);
  static_assert(std::is_same_v<decltype(2 * std::declval<P>() - std::declval<P>() / 3), P>);
  static_assert(std::is_same_v<decltype(relu(std::declval<S>() + 1)), S>);
  static_assert(std::is_same_v<decltype(silu_gradient(std::declval<R>(), std::declval<P>())), P>);
  static_assert(std::is_same_v<decltype(greater(std::declval<S>(), 0)), with_scalar_t<S, std::uint8_t>>);
  static_assert(
      std::is_same_v<decltype(where(std::declval<with_scalar_t<R, std::uint8_t>>(), std::declval<P>(), std::declval<P>())), P>);
}

TEST_CASE("formulas that are refused") {
  DefaultDevice device;
  const Tensor<float, Exec> x(device, {2, 3}), y(device, {3, 2});
  CHECK(weft_test::refusal_of<ShapeError>([&] { maximum(x, y); }) == "weft: maximum([2, 3], [3, 2]): the shapes differ");
  CHECK(weft_test::refusal_of<ShapeError>([&] { where(greater(x, 0), y, y); }) ==
        "weft: where([3, 2], [2, 3]): the shapes differ");
  CHECK(weft_test::refusal_of<UsageError>([&] { clamp(x, 1, 0); }) ==
        "weft: clamp: the lowest value is above the highest one, or one is NaN");
}
