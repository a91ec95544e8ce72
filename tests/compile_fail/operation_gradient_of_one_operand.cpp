// SPDX-License-Identifier: Apache-2.0
// An operation of two operands whose gradient function returns only one gradient.
// expect: this Primitive's gradient\(g, x\.\.\.\) of several operands returns something else than a std::tuple
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct Product : Primitive<Product> {
  auto forward(const auto& x, const auto& y) const { return times(x, y); }
#ifdef WEFT_FAIL
  auto gradient(const auto& g, const auto&, const auto& y) const { return times(g, y); }
#else
  auto gradient(const auto& g, const auto& x, const auto& y) const { return std::tuple{times(g, y), times(g, x)}; }
#endif
};
struct Square : Module<Square> {
  auto forward(const auto& x) const { return Product()(x, x * 2); }
};
auto go() {
  return testing::check_layer([](const auto&) { return Square(); }, {3, 4});
}
