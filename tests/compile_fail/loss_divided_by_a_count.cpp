// SPDX-License-Identifier: Apache-2.0
// A Module divides its loss by its number of samples: weft would divide again, and the number differs between layouts.
// expect: a loss divided by a number
// mention: 0\.5 \* loss
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Autoencoder(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
  auto loss(const auto& batch) const {
    auto x = batch[input];
#ifdef WEFT_FAIL
    return mse(layer(x), x) / double(x.shape()[0]);
#else
    return 0.5 * mse(layer(x), x);
#endif
  }
};
double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}
