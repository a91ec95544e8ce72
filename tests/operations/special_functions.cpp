// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/special_functions.hpp weft/kernels/special_functions.hpp
// Sine, powers, the error function and smooth relatives of ReLU: values against the C library in three precisions, derivatives,
// equality on two ranks, and the ends of the range.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <weft/kernels/special_functions.hpp>
#include <weft/operations/special_functions.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::check_cut;
using weft_test::check_rows;
using weft_test::Exec;

namespace {

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
double softplus_of(double v) { return std::log1p(std::exp(v)); }

/// f of these numbers, in double.
template <class F>
std::vector<double> values_of(F f, const std::vector<double>& numbers) {
  DefaultDevice device;
  return weft_test::numbers_of(f(weft_test::tensor_of<double>(device, {numbers.size()}, numbers)));
}

}  // namespace

TEST_CASE("special functions against the C library") {
  check_precisions([](const auto& x) { return sin(x); }, [](double v) { return std::sin(v); });
  check_precisions([](const auto& x) { return cos(x); }, [](double v) { return std::cos(v); });
  check_precisions([](const auto& x) { return abs(x); }, [](double v) { return std::abs(v); });
  check_precisions([](const auto& x) { return erf(x); }, [](double v) { return std::erf(v); });
  check_precisions([](const auto& x) { return pow(abs(x), 1.5); }, [](double v) { return std::pow(std::abs(v), 1.5); });
  check_precisions([](const auto& x) { return pow(x, 3); }, [](double v) { return v * v * v; });
  check_precisions([](const auto& x) { return softplus(x); }, softplus_of);
  check_precisions([](const auto& x) { return elu(x, 1.5); }, [](double v) { return v > 0 ? v : 1.5 * std::expm1(v); });
  check_precisions([](const auto& x) { return mish(x); }, [](double v) { return v * std::tanh(softplus_of(v)); });
}

TEST_CASE("derivatives of special functions, on one rank and on two") {
  const auto everywhere = [](auto f) {
    check_rows(f, {4, 6});
    check_cut<1>(f, {4, 6});
  };
  everywhere([](const auto& x) { return sin(x * 3) * cos(x * 2); });
  everywhere([](const auto& x) { return abs(x * 2) + erf(x) * x; });
  everywhere([](const auto& x) { return pow(x, 3) - pow(exp(x), -0.7) + pow(x, 0) * x; });
  everywhere([](const auto& x) { return softplus(x * 4) * elu(x * 3); });
  everywhere([](const auto& x) { return mish(x * 2) - elu(x, 0.3); });
}

TEST_CASE("the ends of the range") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  // No overflow, and small results keep their digits.
  const auto soft = values_of([](const auto& x) { return softplus(x); }, {-40, 800, -800, -infinity, infinity});
  CHECK(std::abs(soft[0] / std::exp(-40.0) - 1) < 1e-12);
  CHECK(std::vector<double>(soft.begin() + 1, soft.end()) == std::vector<double>{800, 0, 0, infinity});
  CHECK(values_of([](const auto& x) { return elu(x); }, {-1e-18, -800}) == std::vector<double>{-1e-18, -1});
  CHECK(values_of([](const auto& x) { return mish(x); }, {800, 0}) == std::vector<double>{800, 0});
  const auto at_nan = [&](auto f) { return std::isnan(values_of(f, {nan})[0]); };
  CHECK(at_nan([](const auto& x) { return softplus(x); }));
  CHECK(at_nan([](const auto& x) { return elu(x); }));
  CHECK(at_nan([](const auto& x) { return abs(x); }));
  CHECK(at_nan([](const auto& x) { return abs_gradient(x, x); }));
  // Gradients where a formula would be 0 · ∞, and at the corner of |x|.
  DefaultDevice device;
  const auto zero = weft_test::tensor_of<double>(device, {2}, {0, 2}), g = weft_test::tensor_of<double>(device, {2}, {5, 7});
  CHECK(weft_test::numbers_of(pow_gradient(zero, 0, g)) == std::vector<double>{0, 0});
  CHECK(weft_test::numbers_of(pow_gradient(zero, 1, g)) == std::vector<double>{5, 7});
  CHECK(weft_test::numbers_of(abs_gradient(zero, g)) == std::vector<double>{0, 7});
}
