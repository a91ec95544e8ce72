// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks of grad(f, x) for functions without captures: its values, its own derivative, and equality on two ranks.
//
//   weft_test::check_everywhere([](const auto& p) { return square(sum<1>(p * p)); }, {4, 3});

#include <doctest/doctest.h>

#include <weft/operations/grad.hpp>

#include "support/formula.hpp"

namespace weft_test {

/// The derivative of f against a backward of f's sum; and its own derivative by finite differences.
template <class F>
void check_derivative(F, const Shape& shape) {
  const auto derivative = [](const auto& x) { return grad(F(), x); };
  check_formula(derivative, shape);
  DefaultDevice device;
  const Alone::context context(device, {});
  const auto x = tensor_of<double>(device, shape, waves(shape.size(), 0.3, 0.8));
  Formula layer([](const auto& value) { return sum_all(F()(value)); });
  const auto one = tensor_of<double>(device, {1}, {1});
  const auto expected = weft::backward(layer, context, weft::forward(layer, context, x).saved, one);
  const auto got = weft::forward(Formula(derivative), context, x).output;
  CHECK(difference(numbers_of(got), numbers_of(expected)) < 1e-14);
}
/// Also over dp and over tp, with x whole and with its rows cut.
template <class F>
void check_everywhere(F f, const Shape& shape) {
  check_derivative(f, shape);
  const auto derivative = [](const auto& x) { return grad(F(), x); };
  check_over<Shard<dp, 0>>(derivative, shape);
  check_over<Invariant<tp>>(derivative, shape);
  check_over<Shard<tp, 0>>(derivative, shape);
}

}  // namespace weft_test
