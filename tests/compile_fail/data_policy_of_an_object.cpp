// SPDX-License-Identifier: Apache-2.0
// A policy whose apply is not static.
// expect: this policy's apply cannot be called with ModelOptions
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
#ifdef WEFT_FAIL
  void apply(ModelOptions& options) { options.seed = 2; }
#else
  static void apply(ModelOptions& options) { options.seed = 2; }
#endif
};

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  FullyShardedDataParallel<models::Gpt, zero::Stage2, Own> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
