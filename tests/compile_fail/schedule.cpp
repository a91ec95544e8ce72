// SPDX-License-Identifier: Apache-2.0
// Schedules.
#include <weft/pipeline/schedule/custom.hpp>
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

// section: custom_deadlocks
// The compiler checks a user's schedule: rank 1 needs the second micro-batch first and its gradient first.
// expect: this schedule deadlocks
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

// section: custom_not_constexpr
// A table that the compiler is to prove is made by a constexpr function.
// expect: f must be a constexpr function
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

// section: custom_value_deadlocks
// A user's schedule is proven by the compiler as a value of the options, too.
// expect: this schedule deadlocks
#ifdef WEFT_FAIL
constexpr bool crossed = true;
#else
constexpr bool crossed = false;
#endif

double go(World& world, const Batch& batch) {
  Mesh<pp> mesh(world, {.pp = 2});
  PipelineParallel<models::Gpt> model(mesh, {}, {.pipeline = {.schedule = schedule::custom<my_table<crossed>>()}});
  return model.train_step(batch);
}
