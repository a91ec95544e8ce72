// SPDX-License-Identifier: Apache-2.0
// The mesh has experts over ep, the model has no wrapper for them.
// expect: an axis that no wrapper of the model uses
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Mixtral;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  DataParallel<Model> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  DataParallel<ExpertParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#endif
