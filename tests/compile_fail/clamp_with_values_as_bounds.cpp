// SPDX-License-Identifier: Apache-2.0
// The bounds of clamp are numbers: with three values of one type a call finds Kokkos' clamp, which compares them.
// expect: clamp of values of a forward, which are not compared
// mention: minimum\(maximum\(x, low\), high\)
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct Own : Module<Own> {
  auto forward(const auto& x) const {
    const auto h = tanh(x);
#ifdef WEFT_FAIL
    return exp(clamp(h, x, h));
#else
    return exp(minimum(maximum(h, x), h));
#endif
  }
};
auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}
