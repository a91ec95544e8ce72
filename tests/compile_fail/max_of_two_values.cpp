// SPDX-License-Identifier: Apache-2.0
// Without a dim, max of two values of one type is Kokkos', which compares them.
// expect: max of values of a forward, which are not compared
// mention: maximum\(x, y\)
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct Own : Module<Own> {
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return exp(max(tanh(x), x)); }
#else
  auto forward(const auto& x) const { return exp(maximum(tanh(x), x)); }
#endif
};
auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}
