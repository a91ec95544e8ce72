// SPDX-License-Identifier: Apache-2.0
// Pixels stored as bytes are scaled: they must first be converted to the model's scalar.
// expect: arithmetic on whole numbers
// mention: cast<float>\(x\)
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"pixels", std::uint8_t> pixels;

struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<pixels>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Autoencoder(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
  auto loss(const auto& batch) const {
#ifdef WEFT_FAIL
    auto x = batch[pixels] / 255;
#else
    auto x = cast<float>(batch[pixels]) / 255;
#endif
    return mse(layer(x), x);
  }
};
double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}
