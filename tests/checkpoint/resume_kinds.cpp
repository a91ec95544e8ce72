// SPDX-License-Identifier: Apache-2.0
// Resumed runs with other kinds of state: 16-bit models with master copies in addition to their values or instead of them, loss
// scales, experts and their routers, rules of two kinds, state in host memory or in files, frozen parameters.

#include "support/checkpoints.hpp"

using namespace weft_test;

namespace {

template <class S>
using Dense = FullyShardedDataParallel<TensorParallel<PipelineParallel<models::BasicGpt<S>>>>;
using Grid = Mesh<dp, tp, pp>;
using Place = Layout::Place;

const std::vector<Layout> stages = {{"stage 0", 2, {}, 2},
                                    {"stage 1", 4, {.tp = 2}, 2, "1f1b", 1},
                                    {"stage 2", 2, {}, 2, "1f1b", 2},
                                    {"stage 3", 4, {.pp = 2}, 2, "1f1b", 3},
                                    {"stage 3 host", 2, {}, 2, "1f1b", 3, 1, Place::host},
                                    {"stage 1 host", 2, {}, 2, "1f1b", 1, 1, Place::host},
                                    {"stage 3 file", 2, {}, 2, "1f1b", 3, 1, Place::file},
                                    {"stage 1 file", 2, {}, 2, "1f1b", 1, 1, Place::file}};

}  // namespace

TEST_CASE("bfloat16: master copies in every stage of ZeRO, on the device and in stores") {
  for (const Layout& layout : stages) check_resume<Dense<bfloat16>, Grid>(layout, gpt_config());
}
TEST_CASE("bfloat16: a master copy is the same tensor in every stage") {
  check_reshard<Dense<bfloat16>, Grid>(stages, gpt_config(), {1, 3});
}
TEST_CASE("float16: the loss scale and its run of good steps") {
  for (const Layout& layout : {stages[0], stages[3]}) check_resume<Dense<float16>, Grid>(layout, gpt_config());
}
TEST_CASE("Muon: momentum of matrices, moments of the rest") {
  for (const Layout& layout : {stages[1], stages[3]}) check_resume<Dense<float>, Grid, optim::Muon>(layout, gpt_config());
  check_reshard<Dense<float>, Grid, optim::Muon>({stages[0], stages[1], stages[2], stages[3]}, gpt_config(), {1});
}
TEST_CASE("Sgd: momentum") { check_resume<Dense<float>, Grid, optim::Sgd>(stages[3], gpt_config()); }

TEST_CASE("PowerSgd: factors, and each rank's own error") {
  using Hooked = DataParallel<TensorParallel<PipelineParallel<models::BasicGpt<float>>>>;
  const Layout layout{"dp 4 tp 2", 8, {.tp = 2}, 2, "1f1b", 0, 1, Place::device, 2};
  check_resume<Hooked, Grid>(layout, gpt_config());
  TemporaryFolder folder;
  const std::string place = (folder.path / "run").string();
  run_steps<Hooked, Grid, optim::AdamW>(layout, gpt_config(), place, 0, 2, false, true);
  const auto tensors = tensors_of(place);
  REQUIRE(tensors.contains("hook.rank-3.bucket-0.error"));
  CHECK(tensors.at("hook.rank-3.bucket-0.error") != tensors.at("hook.rank-5.bucket-0.error"));
  // Another layout has other buckets: its hook starts without state, and everything else is restored.
  Layout other = layout;
  other.degrees = {.pp = 2};
  run_steps<Hooked, Grid, optim::AdamW>(other, gpt_config(), place, 2, 4, true, false);
  other.hook_rank = 0;
  run_steps<Hooked, Grid, optim::AdamW>(other, gpt_config(), place, 2, 4, true, false);
}

TEST_CASE("a mixture of experts with its routers' buffers") {
  using Experts = FullyShardedDataParallel<TensorParallel<ExpertParallel<PipelineParallel<models::BasicMixtral<float>>>>>;
  auto config = mixtral_config();
  config.bias_rate = 0.01;
  const std::vector<Layout> layouts = {{"one rank", 1, {}, 2},
                                       {"ep 2", 2, {.ep = 2}, 2},
                                       {"etp 2", 2, {.etp = 2}, 2},
                                       {"tp 2 ep 4 zero 1", 4, {.tp = 2, .ep = 4}, 2, "1f1b", 1},
                                       {"ep 2 pp 2 zbv", 4, {.ep = 2, .pp = 2}, 4, "zbv"},
                                       {"tp 2 ep 2 pp 2 zero 3", 8, {.tp = 2, .ep = 2, .pp = 2}, 4, "interleaved", 3}};
  for (const Layout& layout : layouts) check_resume<Experts, ExpertMesh>(layout, config);
  check_reshard<Experts, ExpertMesh>(layouts, config, {1, 2});
}
