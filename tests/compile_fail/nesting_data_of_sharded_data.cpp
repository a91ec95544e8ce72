// SPDX-License-Identifier: Apache-2.0
// Both distribute the same batches over dp; only one is allowed.
// expect: outermost and once
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<FullyShardedDataParallel<Model, zero::Stage2>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  FullyShardedDataParallel<Model, zero::Stage2> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
