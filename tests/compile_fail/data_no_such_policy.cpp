// SPDX-License-Identifier: Apache-2.0
// The arguments after the model are policies or hooks.
// expect: must be policies, such as Reproducible, or a communication hook
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Model, zero::Stage1> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Model, Reproducible> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
