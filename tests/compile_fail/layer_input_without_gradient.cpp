// SPDX-License-Identifier: Apache-2.0
// A layer whose backward returns only the gradient of its first input is called with two values that have gradients.
// expect: a layer's backward gives the gradient of its first input, and another input of this call is a Variable of real numbers
// mention: detach
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct Weighted : Primitive<Weighted> {
  auto forward(const auto&, const auto& x, const auto& weight) const { return Result{times(x, weight), weight}; }
  auto backward(const auto&, auto weight, const auto& g) const { return times(g, weight); }
};
struct Own : Module<Own> {
  Weighted weighted;
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return weighted(x, sigmoid(x)); }
#else
  auto forward(const auto& x) const { return weighted(x, sigmoid(x).detach()); }
#endif
};
auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}
