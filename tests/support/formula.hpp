// SPDX-License-Identifier: Apache-2.0
#pragma once
// A formula as a layer of which only the forward is written, and its checks: against finite differences, and on several ranks
// against one.
//
//   weft_test::check_formula([](const auto& x) { return silu(x) * x; }, {4, 6});

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <weft/layer/module.hpp>
#include <weft/layer/operations/variables.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

namespace weft_test {

using namespace weft;

template <class F>
struct Formula : Module<Formula<F>> {
  F f;
  explicit Formula(F formula) : f(std::move(formula)) {}
  auto forward(const auto&... x) const { return f(x...); }
};

/// Against finite differences.
template <class F>
void check_formula(F f, const Shape& shape) {
  CHECK(testing::check_layer([=](const auto&) { return Formula<F>(f); }, shape).compared != 0);
}
/// Also over dp and over tp, with x whole and with its rows cut.
template <class F>
void check_rows(F f, const Shape& shape) {
  check_formula(f, shape);
  const auto make = [=](const auto&) { return Formula<F>(f); };
  CHECK(testing::check_layer_on<dp, Shard<dp, 0>>(2, make, shape).compared != 0);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, make, shape).compared != 0);
  CHECK(testing::check_layer_on<tp, Shard<tp, 0>>(2, make, shape).compared != 0);
}
/// Over tp, with x cut along Dim inside of the layer.
template <int Dim, class F>
void check_cut(F f, const Shape& shape) {
  const auto cut = [=](const auto& x) { return f(to<Shard<tp, Dim>>(x)); };
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(
            2, [=](const auto&) { return Formula(cut); }, shape)
            .compared != 0);
}

/// The message of the Error that act() throws; "" if it throws none.
template <class E, class Act>
std::string refusal_of(Act&& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

using Exec = DefaultDevice::execution_space;
template <class T, class... P>
Tensor<T, Exec, P...> tensor_of(DefaultDevice& device, const Shape& shape, const std::vector<double>& values) {
  Tensor<T, Exec, P...> x(device, shape);
  std::vector<T> host(values.size());
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = T(accumulate_t<T>(values[i]));
  copy_from_host(x, std::span<const T>(host));
  return x;
}
template <class X>
std::vector<double> numbers_of(const X& x) {
  std::vector<double> out;
  for (const auto value : copy_to_host(x)) out.push_back(double(accumulate_t<typename X::value_type>(value)));
  return out;
}
/// Numbers between -1 and 1, or -scale and scale.
inline std::vector<double> waves(std::size_t n, double phase = 0, double scale = 1) {
  std::vector<double> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = scale * std::sin(1.7 * double(i * i % 101) + phase);
  return out;
}
/// The largest difference, relative to numbers above 1.
inline double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return 1e300;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i])));
  return worst;
}

}  // namespace weft_test
