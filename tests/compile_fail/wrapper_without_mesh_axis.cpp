// SPDX-License-Identifier: Apache-2.0
// The model is tensor-parallel, the mesh has no such axis.
// expect: a wrapper for an axis that this Mesh lacks
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world);
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
