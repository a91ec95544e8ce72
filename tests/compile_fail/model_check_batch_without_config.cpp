// SPDX-License-Identifier: Apache-2.0
// A check_batch that takes only the batch: it would never be called.
// expect: this model's check_batch cannot be called with its config and batch
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {};
  Linear<> layer;
  Autoencoder(const auto& context, const Config&) : layer(context / "layer", 4, 4) {}
  auto loss(const auto& batch) const { return mse(layer(batch[input]), batch[input]); }
#ifdef WEFT_FAIL
  static void check_batch(const Batch& batch) { batch.check(); }
#else
  static void check_batch(const Config&, const Batch& batch) { batch.check(); }
#endif
};
double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}
