// SPDX-License-Identifier: Apache-2.0
// The data wrapper must be outermost.
// expect: belongs outside it
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Mixtral;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  ExpertParallel<DataParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  DataParallel<ExpertParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#endif
