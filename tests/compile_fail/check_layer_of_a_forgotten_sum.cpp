// SPDX-License-Identifier: Apache-2.0
// check_layer_on does not move a layer's gradient to the required placement.
// expect: backward returned a gradient that is not the dual of its input
#include <weft/operations/products.hpp>
#include <weft/testing/check_layer.hpp>

using namespace weft;

struct Twice {
  auto forward(const auto& context, const auto& x) const {
    const auto inside = to<Replicated<tp>>(context, x);
    return Result{add(inside, inside), Nothing{}};
  }
  template <class Context, class G>
  auto backward(const Context& context, Nothing, const G& g) {
    auto dx = add(g, g);
#ifdef WEFT_FAIL
    (void)context;
    return dx;
#else
    return to<Invariant<tp>>(context, dx);
#endif
  }
};

void go() {
  testing::check_layer_on<tp, Invariant<tp>>(2, [](const auto&) { return Twice{}; }, {4, 8});
}
