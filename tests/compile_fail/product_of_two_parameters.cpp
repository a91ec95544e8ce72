// SPDX-License-Identifier: Apache-2.0
// Two Parameters have no value of the forward beside them.
// expect: operator\* of two Parameters
// mention: beside\(x, first\) \* second
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct Own : Module<Own> {
  Parameter<> gain, weight;
  Own(const auto& context) : gain(context, "gain", {4}, ones), weight(context, "weight", {4}, ones) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return x * (gain * weight); }
#else
  auto forward(const auto& x) const { return x * (beside(x, gain) * weight); }
#endif
};
auto go() {
  return testing::check_layer([](const auto& context) { return Own(context); }, {3, 4});
}
