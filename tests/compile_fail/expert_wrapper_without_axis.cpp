// SPDX-License-Identifier: Apache-2.0
// The model has experts over ep, the mesh has no such axis.
// expect: an axis that this Mesh lacks
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Mixtral;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<ExpertParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  DataParallel<ExpertParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#endif
