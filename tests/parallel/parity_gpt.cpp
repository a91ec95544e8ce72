// SPDX-License-Identifier: Apache-2.0
// Every layout of (dp, tp, pp) over 1, 2, 4 and 8 thread ranks gives the loss, gradient norm, every gradient, validation loss and
// logits of one rank, under both schedules, with dropout, tied or grouped heads and a vocabulary that no degree divides.

#include "support/parity.hpp"

using namespace weft_test;

template <class Model, class Schedule>
using Composition = DataParallel<TensorParallel<PipelineParallel<Model, Schedule>>>;

TEST_CASE("gpt in double, 1F1B") {
  check_all_layouts<Composition<models::BasicGpt<double>, schedule::OneForwardOneBackward>>(gpt_config(), 1e-12);
}
TEST_CASE("gpt in double, GPipe") {
  check_all_layouts<Composition<models::BasicGpt<double>, schedule::GPipe>>(gpt_config(), 1e-12);
}
TEST_CASE("gpt in float, 1F1B") {
  check_all_layouts<Composition<models::BasicGpt<float>, schedule::OneForwardOneBackward>>(gpt_config(), 1e-5);
}
