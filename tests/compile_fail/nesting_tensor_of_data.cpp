// SPDX-License-Identifier: Apache-2.0
// Sums over tp come before the reduction over dp, so DataParallel must be outside.
// expect: belongs outside it
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world);
  TensorParallel<DataParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world);
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
