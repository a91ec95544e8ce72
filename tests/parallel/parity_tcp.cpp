// SPDX-License-Identifier: Apache-2.0
// A tiny GPT on processes connected by TCP gives the losses, gradients and logits of one rank: every layout of dp, tp and pp.

#include "support/parity.hpp"

#include <weft/comm/tcp.hpp>

using namespace weft_test;

TEST_CASE("every layout over TCP in double") {
  using Model = models::BasicGpt<double>;
  const Reference reference = reference_of<Model>(gpt_config());
  const auto world = std::size_t(runtime::launch_from_environment().world);
  check_layouts<DataParallel<TensorParallel<PipelineParallel<Model>>>, comm::Tcp>(world, gpt_config(), reference, 1e-12);
}
