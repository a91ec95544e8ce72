// SPDX-License-Identifier: Apache-2.0
// A table that the compiler is to prove is made by a constexpr function.
// expect: f must be a constexpr function
#include <weft/weft.hpp>

#include <weft/pipeline/schedule/custom.hpp>

using namespace weft;

#ifdef WEFT_FAIL
inline
#else
constexpr
#endif
    schedule::Table
    all_forward_first() {
  using enum schedule::Op;
  const schedule::Order order{{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {B, 0, 1}};
  return {.ranks = 2, .chunks = 1, .micro_batches = 2, .orders = {order, order}, .stage_of = {{0}, {1}}};
}

double go(World& world, const Batch& batch) {
  Mesh<dp, pp> mesh(world, {.pp = 2});
  DataParallel<PipelineParallel<models::Gpt, schedule::Custom<all_forward_first>>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
