// SPDX-License-Identifier: Apache-2.0
// The pipeline cuts a model, not its copies.
// expect: stands next to the model
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, pp> mesh(world);
  PipelineParallel<DataParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, pp> mesh(world);
  DataParallel<PipelineParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
