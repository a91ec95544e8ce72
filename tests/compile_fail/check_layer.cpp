// SPDX-License-Identifier: Apache-2.0
// testing::check_layer.
#include <weft/operations/products.hpp>
#include <weft/testing/check_layer.hpp>

using namespace weft;

// section: of_a_forgotten_sum
// check_layer_on does not move a layer's gradient to the required placement.
// expect: backward returned a gradient that is not the dual of its input
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

// section: of_no_result
// check_layer gives the same error for an invalid layer as a model.
// expect: this layer's forward returns something else than a Result
// mention: Own
struct Own {
#ifdef WEFT_FAIL
  auto forward(const auto&, const auto& x) const { return add(x, x); }
#else
  auto forward(const auto&, const auto& x) const { return Result{add(x, x), Nothing{}}; }
#endif
  auto backward(const auto&, Nothing, const auto& g) { return add(g, g); }
};

void go() {
  testing::check_layer([](const auto&) { return Own{}; }, {4, 8});
}

// section: of_two_axes_that_cut_rows
// The rows of a rank have one order, that of the first axis.
// expect: only the first one may cut rows
struct Double {
  auto forward(const auto&, const auto& x) const { return Result{add(x, x), Nothing{}}; }
  auto backward(const auto&, Nothing, const auto& g) { return add(g, g); }
};

void go() {
  const auto make = [](const auto&) { return Double{}; };
#ifdef WEFT_FAIL
  testing::check_layer_on<Invariant<tp>, Shard<cp, 0>>({2, 2}, make, {8, 8});
#else
  testing::check_layer_on<Shard<cp, 0>, Invariant<tp>>({2, 2}, make, {8, 8});
#endif
}
