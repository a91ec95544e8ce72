// SPDX-License-Identifier: Apache-2.0
// expect: this Module's loss cannot be called with the fields of its batch
// mention: auto loss\(const auto& batch\) const
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {};
  Linear<> layer;
  Autoencoder(const auto& context, const Config&) : layer(context / "layer", 4, 4) {}
#ifdef WEFT_FAIL
  auto loss(const auto& batch) { return mse(layer(batch[input]), batch[input]); }
#else
  auto loss(const auto& batch) const { return mse(layer(batch[input]), batch[input]); }
#endif
};
double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}
