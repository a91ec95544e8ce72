// SPDX-License-Identifier: Apache-2.0
// A blend of two values by a third one is no choice between them: its gradient would be lost.
// expect: where: the condition is a Variable of real numbers, whose gradient would be lost
// mention: greater\(x, 0\)
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct Own : Module<Own> {
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return exp(where(sigmoid(x), x, 0.5)); }
#else
  auto forward(const auto& x) const { return exp(where(sigmoid(x).detach(), x, 0.5)); }
#endif
};
auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}
