// SPDX-License-Identifier: Apache-2.0
// An optimizer that needs whole matrices cannot update pieces of them.
// expect: this optimizer's rule is not elementwise
#include <weft/weft.hpp>

using namespace weft;

struct MatrixRule : optim::AdamWRule {
  static constexpr bool elementwise = false;
};

#ifdef WEFT_FAIL
using Model = FullyShardedDataParallel<models::Gpt, zero::Stage3>;
#else
using Model = DataParallel<models::Gpt>;
#endif

void go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  Model model(mesh, models::GptConfig{});
  optim::Optimizer<MatrixRule> optimizer(model);
  model.train_step(batch);
  optimizer.step();
}
