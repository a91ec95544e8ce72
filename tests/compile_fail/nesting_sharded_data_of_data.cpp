// SPDX-License-Identifier: Apache-2.0
// Sharding replaces DataParallel.
// expect: in place of DataParallel
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  FullyShardedDataParallel<DataParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  FullyShardedDataParallel<Model> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
