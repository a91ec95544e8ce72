// SPDX-License-Identifier: Apache-2.0
// ExpertParallel must be inside TensorParallel, which binds the axes that it folds.
// expect: belongs outside it
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Mixtral;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<tp, ep, edp> mesh(world);
  ExpertParallel<TensorParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<tp, ep, edp> mesh(world);
  TensorParallel<ExpertParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#endif
