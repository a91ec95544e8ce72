// SPDX-License-Identifier: Apache-2.0
// One wrapper for one axis.
// expect: outermost and once
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<DataParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Model> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
