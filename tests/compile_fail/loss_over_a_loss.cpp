// SPDX-License-Identifier: Apache-2.0
// A loss is divided by another one.
// expect: operator/ of a loss and a value
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
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
  auto forward(const auto& x) const { return silu(layer(x)); }
#ifdef WEFT_FAIL
  auto loss(const auto& batch) const {
    return mse(forward(batch[input]), batch[input]) / mse(batch[input], batch[input].detach());
  }
#else
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
#endif
};
double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}
