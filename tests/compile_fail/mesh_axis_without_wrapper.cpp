// SPDX-License-Identifier: Apache-2.0
// The mesh has a pipeline, but the model has none: the ranks would all do the same work.
// expect: an axis that no wrapper of the model uses
#include <weft/weft.hpp>

using namespace weft;

using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, tp, pp> mesh(world);
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, tp, pp> mesh(world);
  DataParallel<TensorParallel<PipelineParallel<Model>>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
