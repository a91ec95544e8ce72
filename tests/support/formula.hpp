// SPDX-License-Identifier: Apache-2.0
#pragma once
// A formula as a layer with only a forward, and its checks: by finite differences, and on several ranks compared with one.
//
//   weft_test::check_formula([](const auto& x) { return silu(x) * x; }, {4, 6});

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/module.hpp>
#include <weft/operations/variables.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

namespace weft_test {

using namespace weft;

/// A formula of any inputs and results.
template <class F>
struct Formula : Module<Formula<F>> {
  F f;
  explicit Formula(F formula) : f(std::move(formula)) {}
  auto forward(const auto&... x) const { return f(x...); }
};

/// A formula of one placed tensor, an X in the context C, with a result of type Y. The type contains nothing else of the formula,
/// a lambda without captures: a check is compiled once for all formulas with the same placements.
template <class C, class X, class Y>
struct PlacedFormula : Module<PlacedFormula<C, X, Y>> {
  using function_type = Variable<C, Y> (*)(const Variable<C, X>&);
  function_type f;
  explicit PlacedFormula(function_type formula) : f(formula) {}
  Variable<C, Y> forward(const Variable<C, X>& x) const { return f(x); }
};
/// The same of F, whose forward gets the context of a step.
template <class F, class C, class X, class Step = weft::detail::step_context_t<C>>
using formula_t = PlacedFormula<Step, X, typename std::invoke_result_t<F, const Variable<Step, X>&>::tensor_type>;

/// A tensor as a constant beside a Variable of a forward.
template <class V, class X>
Variable<typename V::context_type, X> constant_beside(const V& variable, X x) {
  return {std::move(x), variable.tape()};
}

/// The context and the input of testing::check_layer, and of testing::check_layer_on<tp, Hidden> and <dp, Hidden>.
struct Alone {
  using context = testing::detail::Root;
  using input = testing::detail::Whole;
};
template <class Hidden>
struct Over {
  using context = decltype(std::declval<Alone::context>()
                               .with<Shard<dp, 0>>(dp{}, std::declval<Communicator>())
                               .template with<Hidden>(tp{}, std::declval<Communicator>()));
  using input = Tensor<double, testing::detail::Exec, Shard<dp, 0>, Hidden>;
};
template <class Hidden>
requires std::is_same_v<typename Hidden::axis, dp>
struct Over<Hidden> {
  using context = decltype(std::declval<Alone::context>().with<Hidden>(dp{}, std::declval<Communicator>()));
  using input = Tensor<double, testing::detail::Exec, Hidden>;
};

/// Makes the layers of a check on several ranks: the one-rank layer, and those that are compared with it.
template <class One, class Each>
struct MakeFormula {
  typename One::function_type one;
  typename Each::function_type each;
  One operator()(const Alone::context&) const { return One(one); }
  template <class Context>
  Each operator()(const Context&) const {
    return Each(each);
  }
};
template <class Layer>
void check_alone(typename Layer::function_type f, const Shape& shape) {
  CHECK(testing::check_layer([=](const auto&) { return Layer(f); }, shape).compared != 0);
}
template <class Hidden, class One, class Each>
void check_ranks(const MakeFormula<One, Each>& make, const Shape& shape) {
  CHECK(testing::check_layer_on<typename Hidden::axis, Hidden>(2, make, shape).compared != 0);
}

/// Against finite differences.
template <class F>
void check_formula(F f, const Shape& shape) {
  check_alone<formula_t<F, Alone::context, Alone::input>>(f, shape);
}
/// On two ranks of Hidden's axis against one.
template <class Hidden, class F>
void check_over(F f, const Shape& shape) {
  using One = formula_t<F, Alone::context, Alone::input>;
  using Each = formula_t<F, typename Over<Hidden>::context, typename Over<Hidden>::input>;
  check_ranks<Hidden>(MakeFormula<One, Each>{f, f}, shape);
}
/// Also over dp and over tp, with x whole and with its rows cut.
template <class F>
void check_rows(F f, const Shape& shape) {
  check_formula(f, shape);
  check_over<Shard<dp, 0>>(f, shape);
  check_over<Invariant<tp>>(f, shape);
  check_over<Shard<tp, 0>>(f, shape);
}
/// Over tp, with x cut along Dim inside of the layer.
template <int Dim, class F>
void check_cut(F, const Shape& shape) {
  check_over<Invariant<tp>>([](const auto& x) { return F()(to<Shard<tp, Dim>>(x)); }, shape);
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
