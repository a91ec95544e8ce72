// SPDX-License-Identifier: Apache-2.0
// A function of the standard library takes numbers.
// expect: std::tanh is a function of numbers
#include <cmath>
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
  auto forward(const auto& x) const { return silu(std::tanh(layer(x))); }
#else
  auto forward(const auto& x) const { return silu(tanh(layer(x))); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};
double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}
