// SPDX-License-Identifier: Apache-2.0
// A loss makes its weight of the batch's number of samples, by which weft divides once.
// expect: weft: a LossWeight is made while a step runs, so it may depend on the batch, by whose count weft divides the loss once: make it in the Module's constructor
// mention: loss_weight_made_in_a_step.cpp:
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    double weight = 0.5;
  };
  Linear<> layer;
  LossWeight weight;
  Autoencoder(const auto& context, const Config& config) : layer(context / "layer", 4, 4), weight(context, config.weight) {}
  auto loss(const auto& batch) const {
    auto x = batch[input];
#ifdef WEFT_FAIL
    return LossWeight(x.context(), 1 / double(x.shape()[0])) * mse(layer(x), x);
#else
    return weight * mse(layer(x), x);
#endif
  }
};
double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}
