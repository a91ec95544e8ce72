// SPDX-License-Identifier: Apache-2.0
// depthwise_conv2d has no bias, with options or without.
// expect: depthwise_conv2d cannot be called with these arguments
#include <weft/operations/convolution.hpp>
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {4, 1, 3, 3}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const {
    auto h = depthwise_conv2d(reshape(layer(x), {1, 4, 2, 2}), table, table, {.padding = 1});
    return reshape(silu(h), {4, 4});
  }
#else
  auto forward(const auto& x) const {
    auto h = depthwise_conv2d(reshape(layer(x), {1, 4, 2, 2}), table, {.padding = 1});
    return reshape(silu(h), {4, 4});
  }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};
double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}
