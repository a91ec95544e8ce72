// SPDX-License-Identifier: Apache-2.0
// One wrapper for one axis.
// expect: belongs outside it
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<tp> mesh(world);
  TensorParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<tp> mesh(world);
  TensorParallel<Model> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
