// SPDX-License-Identifier: Apache-2.0
// Gradients are summed over cp before they are reduced over dp, so DataParallel must be outside.
// expect: the wrapper inside ContextParallel belongs outside it
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, cp> mesh(world);
  ContextParallel<DataParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, cp> mesh(world);
  DataParallel<ContextParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
