// SPDX-License-Identifier: Apache-2.0
// Without dp, cp or tp all ranks would have the same tokens.
// expect: all ranks would have the same tokens
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Mixtral;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<ep> mesh(world);
  ExpertParallel<Model> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, ep> mesh(world);
  DataParallel<ExpertParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#endif
