// SPDX-License-Identifier: Apache-2.0
// A Module multiplies its loss by one over its number of samples, a number that is known only during the step. Weights of losses
// are constants, and numbers of the config that the Module stores as a LossWeight.
// expect: call to (consteval|non-.constexpr.) function
// mention: LossWeight|x.shape
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
    double weight = 0.5;
  };
  Linear<> layer;
  LossWeight weight;
  Autoencoder(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), weight(context, config.weight) {}
  auto loss(const auto& batch) const {
    auto x = batch[input];
#ifdef WEFT_FAIL
    return mse(layer(x), x) * (1.0 / double(x.shape()[0]));
#else
    return weight * mse(layer(x), x) + 0.5 * mse(layer(x), x) * 2 - mse(layer(x), x) * (1.0 / 3);
#endif
  }
};
double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}
