// SPDX-License-Identifier: Apache-2.0
// The sharded state is one of three types, not a number.
// expect: zero::Stage1, zero::Stage2 or zero::Stage3
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  FullyShardedDataParallel<Model, schedule::GPipe> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  FullyShardedDataParallel<Model, zero::Stage3> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
