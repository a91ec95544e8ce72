// SPDX-License-Identifier: Apache-2.0
// Sequences are to be cut over cp, and the mesh has no such axis.
// expect: a wrapper for an axis that this Mesh lacks
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<ContextParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, cp> mesh(world);
  DataParallel<ContextParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
