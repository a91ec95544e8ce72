// SPDX-License-Identifier: Apache-2.0
// A unit is scattered over dp after its sums over tp, so sharding must be outside.
// expect: belongs outside it
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world);
  TensorParallel<FullyShardedDataParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world);
  FullyShardedDataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
