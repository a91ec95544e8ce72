// SPDX-License-Identifier: Apache-2.0
// A mixture of experts folded over sequences that cp cuts: balance and capacity are counted over whole sequences wherever their
// tokens are.

#include "support/experts.hpp"

using namespace weft_test;

namespace {
using Model = models::BasicMixtral<double>;
using Inner = ExpertParallel<PipelineParallel<Model>>;
using Everything = Mesh<dp, cp, tp, pp, ep, etp, edp>;
const FoldedLayout layouts[] = {{2, {.cp = 2, .ep = 2}, 2},
                                {4, {.tp = 2, .cp = 2, .ep = 4}, 2},
                                {8, {.cp = 2, .ep = 2, .etp = 2, .pp = 2}, 2},
                                {8, {.tp = 2, .cp = 2, .ep = 4}, 2}};
}  // namespace

TEST_CASE("ring, dropped tokens") {
  auto config = mixtral_config();
  config.capacity_factor = 0.75;
  config.drop = nn::Drop::by_position;
  const Reference reference = reference_of<Model>(config);
  for (const FoldedLayout& layout : layouts)
    check_folded<DataParallel<ContextParallel<TensorParallel<Inner>, Ring>>, comm::Threads, Everything>(config, reference, layout,
                                                                                                        1e-12);
}
