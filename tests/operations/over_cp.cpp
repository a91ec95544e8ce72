// SPDX-License-Identifier: Apache-2.0
// Operations of models of fields on rows that cp cuts, in two chunks of each sequence: values and gradients of one rank.
#include <weft/testing/check_layer.hpp>

#include <doctest/doctest.h>

#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/operations/comparisons.hpp>
#include <weft/operations/fourier.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/moves.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/sort.hpp>
#include <weft/operations/special_functions.hpp>
#include <weft/operations/upsample.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

/// Each row is an image of 4 channels and 6 places.
struct OfEachRow : Module<OfEachRow> {
  Conv1d<> convolution;
  ConvTranspose1d<> transposed;
  GroupNorm<> norm;
  InstanceNorm<> instance_norm;
  explicit OfEachRow(const auto& at)
      : convolution(at / "convolution", 4, 4, 3, {.padding = 1}),
        transposed(at / "transposed", 4, 4, 3, {.padding = 1}),
        norm(at / "norm", 2, 4),
        instance_norm(at / "instance_norm", 4) {}
  auto forward(const auto& x) const {
    const auto windows = max_pool1d(x, {.kernel = 3, .stride = 1, .padding = 1}) +
                         avg_pool1d(upsample(x, {.factor = 2, .mode = UpsampleMode::linear}), {.kernel = 2}) +
                         unflatten<1>(global_avg_pool1d(x), 1);
    const auto layers = norm(convolution(x)) * instance_norm(transposed(x));
    const auto moves = flip<2>(x) * roll<1>(x, 1) + slice<2>(pad<2>(x, 1, 1, PaddingMode::reflect), 0, 6) + cumsum<2>(x);
    const auto sorted = sort<2>(x).first * topk<2>(x, 6).first + irfft<2>(square(rfft<2>(x)), 6);
    const auto functions = sin(x) * cos(x) + abs(x) + erf(x) + pow(x, 3.0) + softplus(x) + elu(x) + mish(x);
    return windows + layers + moves + sorted + where(x < 0.0, functions, sin(functions));
  }
};

}  // namespace

TEST_CASE("rows that cp cuts") {
  const auto make = [](const auto& context) { return OfEachRow(context); };
  const auto checked = testing::check_layer_on<cp>(2, make, {8, 4, 6}, {.length = 4});
  CHECK(checked.compared > 8 * 4 * 6);
}
