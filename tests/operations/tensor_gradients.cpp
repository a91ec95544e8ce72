// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/pooling.hpp weft/operations/along_dim.hpp
// The gradients of operations on tensors, which a Primitive calls: each is the adjoint of its operation, sum(f(x) g) =
// sum(x f_gradient(g)), for maxima and orders at the places that forward found.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include <weft/operations/along_dim.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/sort.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::numbers_of;
using weft_test::tensor_of;
using weft_test::waves;

namespace {

template <class X, class Y>
double inner_product_of(const X& x, const Y& y) {
  const std::vector<double> a = numbers_of(x), b = numbers_of(y);
  REQUIRE(a.size() == b.size());
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
template <class Y, class G, class X, class D>
void check_adjoint(const Y& y, const G& g, const X& x, const D& dx) {
  CHECK(dx.shape() == x.shape());
  CHECK(std::abs(inner_product_of(y, g)) > 1e-3);
  CHECK(std::abs(inner_product_of(y, g) - inner_product_of(x, dx)) < 1e-12);
}

}  // namespace

TEST_CASE("the gradients of tensor operations are their adjoints") {
  DefaultDevice device;
  const auto x = tensor_of<double>(device, {2, 3, 5, 6}, waves(180));
  const auto gradient_of = [&](const auto& y) { return tensor_of<double>(device, y.shape(), waves(y.size(), 1)); };
  SUBCASE("pooling by windows") {
    const PoolingOptions options{.kernel = 3, .stride = 2, .padding = 1};
    const auto means = avg_pool2d(x, options);
    const auto g = gradient_of(means);
    check_adjoint(means, g, x, avg_pool2d_gradient(x.shape(), g, options));
    const auto [largest, places] = max_pool2d_and_place(x, options);
    check_adjoint(largest, g, x, max_pool2d_gradient(x.shape(), places, g, options));
  }
  SUBCASE("pooling of images") {
    const auto y = global_avg_pool2d(x);
    const auto g = gradient_of(y);
    check_adjoint(y, g, x, global_avg_pool2d_gradient(x.shape(), g));
  }
  SUBCASE("along a dim") {
    const auto means = mean<2>(x);
    const auto g = gradient_of(means);
    check_adjoint(means, g, x, mean_gradient<2>(x, g));
    const auto [largest, places] = max_and_place<2>(x);
    check_adjoint(largest, g, x, max_gradient<2>(x, places, g));
  }
  SUBCASE("in order") {
    const auto [values, places] = sort<2>(x);
    const auto g = gradient_of(values);
    check_adjoint(values, g, x, sort_gradient<2>(x.shape(), places, g));
  }
  SUBCASE("depthwise convolution") {
    const ConvolutionOptions options{.stride = 2, .padding = 1};
    const auto w = tensor_of<double>(device, {3, 1, 3, 3}, waves(27, 2));
    const auto y = depthwise_conv2d(x, w, options);
    const auto g = gradient_of(y);
    check_adjoint(y, g, x, depthwise_conv2d_input_gradient(x, w, g, options));
    check_adjoint(y, g, w, depthwise_conv2d_weight_gradient(x, w, g, options));
  }
}
