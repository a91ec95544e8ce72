// SPDX-License-Identifier: Apache-2.0
// The pipeline must be directly around the model.
// expect: stands next to the model
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<tp, pp> mesh(world);
  PipelineParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<tp, pp> mesh(world);
  TensorParallel<PipelineParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
