// SPDX-License-Identifier: Apache-2.0
// check_layer gives the same error for an invalid layer as a model.
// expect: this layer's forward returns something else than a Result
// mention: Own
#include <weft/operations/products.hpp>
#include <weft/testing/check_layer.hpp>

using namespace weft;

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
