// SPDX-License-Identifier: Apache-2.0
// A C++ mistake in a Module's loss gives only the compiler's error, and none of weft's.
// expect: power
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {};
  Linear<> layer;
  Autoencoder(const auto& context, const Config&) : layer(context / "layer", 4, 4) {}
  auto loss(const auto& batch) const {
    auto x = layer(batch[input]);
#ifdef WEFT_FAIL
    return sum_losses(x.power(2));
#else
    return sum_losses(square(x));
#endif
  }
};
double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}
