// SPDX-License-Identifier: Apache-2.0
// A Module is trained without a wrapper.
// expect: a Module is trained in a wrapper
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
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};
double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
#ifdef WEFT_FAIL
  Net model(mesh, {.width = 4});
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  const double loss = model.train_step(batch);
  optimizer.step();
  return loss;
#else
  DataParallel<Net> model(mesh, {.width = 4});
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  const double loss = model.train_step(batch);
  optimizer.step();
  return loss;
#endif
}
