// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/detail/attention_by_rows.hpp weft/tensor/softmax_statistics.hpp
// ModelOptions::numerics.batch_invariant: GPT gives a token the same log-probability, bit by bit, when it is generated in a batch
// of any size and when it is trained on, in every layout. Without the option bits differ.

#include <weft/kernels/detail/attention_by_rows.hpp>
#include <weft/tensor/softmax_statistics.hpp>

#include "generation/invariance.hpp"
#include "support/message.hpp"

using namespace weft_test;

namespace {
models::GptConfig config_of() {
  models::GptConfig config = gpt_config();
  config.layers = 2;
  config.sequence = trained_length;
  config.dropout = 0;
  config.standard_deviation = 0.3;  // probabilities far from uniform
  return config;
}
template <class S>
using Composition = FullyShardedDataParallel<TensorParallel<PipelineParallel<models::BasicGpt<S>>>>;
using Grid = Mesh<dp, tp, pp>;
}  // namespace

TEST_CASE("batches of 1, 3 and 8 sequences and training give the same bits on one rank, and other bits without the option") {
  CHECK(apart_on_one_rank<models::BasicGpt<float>>(config_of(), true) == 0);
  const std::size_t apart = apart_on_one_rank<models::BasicGpt<float>>(config_of(), false);
  MESSAGE("float, without the option: " << apart << " of 144 log-probabilities differ");
  CHECK(apart > 0);
}

TEST_CASE("layouts of dp, ZeRO, pp and tp train with the bits that they generate") {
  check_layouts<Composition<float>, Grid>(
      config_of(), {{2, {}}, {2, {}, 3}, {2, {.pp = 2}}, {2, {.tp = 2}}, {4, {.tp = 4}}, {4, {.tp = 2, .pp = 2}}});
}
