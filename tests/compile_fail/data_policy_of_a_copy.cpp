// SPDX-License-Identifier: Apache-2.0
// A policy that sets options of a copy.
// expect: this policy's apply takes ModelOptions by value or const reference, so the options that it sets would be lost
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
#ifdef WEFT_FAIL
  static void apply(ModelOptions options) { options.seed = 2; }
#else
  static void apply(ModelOptions& options) { options.seed = 2; }
#endif
};

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<models::Gpt, Own> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
