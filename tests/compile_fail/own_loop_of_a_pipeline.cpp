// SPDX-License-Identifier: Apache-2.0
// A user's own training loop over a pipeline.
// expect: a custom training loop calls the whole model, and a rank of a pipeline has only a part of it
#include <weft/weft.hpp>

using namespace weft;

void go(World& world, const Batch& batch) {
  Mesh<dp, pp> mesh(world, {.pp = 2});
  DataParallel<PipelineParallel<models::Gpt>> model(mesh, {});
#ifdef WEFT_FAIL
  model.loss(batch).backward();
#else
  model.train_step(batch);
#endif
}
