// SPDX-License-Identifier: Apache-2.0
// The compiler checks a user's schedule: rank 1 needs the second micro-batch first and its gradient first.
// expect: this schedule deadlocks
#include <weft/weft.hpp>

using namespace weft;

template <bool crosses>
constexpr schedule::Table my_table() {
  using schedule::Op;
  schedule::Table table{2, 1, 2, {}, {{0}, {1}}};
  table.orders.push_back({{Op::F, 0, 0}, {Op::B, 0, 0}, {Op::F, 0, 1}, {Op::B, 0, 1}});
  const int first = crosses ? 1 : 0;
  table.orders.push_back({{Op::F, 0, first}, {Op::B, 0, first}, {Op::F, 0, 1 - first}, {Op::B, 0, 1 - first}});
  return table;
}

#ifdef WEFT_FAIL
constexpr bool crossed = true;
#else
constexpr bool crossed = false;
#endif

double go(World& world, const Batch& batch) {
  Mesh<pp> mesh(world, {.pp = 2});
  PipelineParallel<models::Gpt, schedule::Custom<my_table<crossed>>> model(mesh, {});
  return model.train_step(batch);
}
