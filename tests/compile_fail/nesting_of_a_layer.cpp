// SPDX-License-Identifier: Apache-2.0
// A layer is no model: wrappers cut and spread a stack of blocks.
// expect: a wrapper stands around another wrapper or a model
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
using Model = Linear<>;
#else
using Model = models::Gpt;
#endif

double go(World& world, const Batch& batch) {
  Mesh<dp, tp, pp> mesh(world, {.tp = 2, .pp = 2});
  DataParallel<TensorParallel<PipelineParallel<Model>>> model(mesh, {8, 8});
  optim::AdamW optimizer(model);
  const double loss = model.train_step(batch);
  optimizer.step();
  return loss;
}
