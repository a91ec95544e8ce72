// SPDX-License-Identifier: Apache-2.0
// Weights of losses in the place of targets would decide by their signs which losses count.
// expect: sum_losses: targets are whole numbers
// mention: losses \* weights
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"x", float> values;
inline constexpr data::Field<"weight", float> weights;

struct Model : Module<Model> {
  using scalar = float;
  using Batch = FieldBatch<values, weights>;
  struct Config {};
  Linear<> linear;
  Model(const auto& context, const Config&) : linear(context / "linear", 3, 1) {}
  auto forward(const auto& x) const { return linear(x); }
  auto loss(const auto& batch) const {
    const auto losses = sum<1>(square(forward(batch[values])));
#ifdef WEFT_FAIL
    return sum_losses(losses, batch[weights]);
#else
    return sum_losses(losses * batch[weights]);
#endif
  }
};
double go(World& world, const Model::Batch& batch) {
  SingleDevice<Model> model(world.device(), Model::Config{});
  return model.train_step(batch);
}
