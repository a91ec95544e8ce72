// SPDX-License-Identifier: Apache-2.0
// Attention across ranks has two methods, and a schedule is neither.
// expect: must be Ring or Ulysses
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<cp> mesh(world);
  ContextParallel<Model, schedule::GPipe> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<cp> mesh(world);
  ContextParallel<Model, Ulysses> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
