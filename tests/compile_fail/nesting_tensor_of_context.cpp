// SPDX-License-Identifier: Apache-2.0
// Sums over tp come before those over cp, so ContextParallel must be outside TensorParallel.
// expect: belongs outside it
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<cp, tp> mesh(world);
  TensorParallel<ContextParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<cp, tp> mesh(world);
  ContextParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
