// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/expert_parallel.hpp
// A mixture of experts over (dp, tp, pp) x (edp, ep, etp) gives the loss, gradient norm, every gradient, validation loss and
// logits of one rank, in double to 1e-12: with auxiliary losses, dropped tokens, experts without tokens, dropout.

#include <weft/parallel/expert_parallel.hpp>

#include "support/experts.hpp"

using namespace weft_test;

namespace {
using Model = models::BasicMixtral<double>;
using Inner = ExpertParallel<PipelineParallel<Model>>;
}  // namespace

TEST_CASE("dropless, tensor parallel stream") {
  const Reference reference = reference_of<Model>(mixtral_config());
  for (const FoldedLayout& layout : folded_layouts)
    check_folded<DataParallel<TensorParallel<Inner>>>(mixtral_config(), reference, layout, 1e-12);
}

TEST_CASE("capacity by either rule, and experts that see no token") {
  auto config = mixtral_config();
  config.capacity_factor = 0.75;
  config.drop = nn::Drop::by_probability;
  config.scores = nn::Scores::before_top_k;
  for (const bool more_experts : {false, true}) {
    if (more_experts) {
      config.experts = 64;
      config.top_k = 1;
      config.drop = nn::Drop::by_position;
    }
    const Reference reference = reference_of<Model>(config);
    for (const FoldedLayout& layout : {FoldedLayout{2, {.ep = 2}, 2}, FoldedLayout{4, {.tp = 2, .ep = 4}, 2},
                                       FoldedLayout{8, {.tp = 2, .ep = 2, .etp = 2, .pp = 2}, 4}})
      check_folded<DataParallel<TensorParallel<Inner>>>(config, reference, layout, 1e-12);
  }
}

TEST_CASE("biases move by the load of all ranks and micro-batches") {
  auto config = mixtral_config();
  config.auxiliary_loss = 0;
  config.bias_rate = 0.05;
  const Reference reference = reference_of<Model>(config);
  for (const FoldedLayout& layout :
       {FoldedLayout{2, {.ep = 2}, 2}, FoldedLayout{4, {.tp = 2, .ep = 4}, 2}, FoldedLayout{8, {.tp = 2, .ep = 4, .pp = 2}, 4}})
    check_folded<DataParallel<TensorParallel<Inner>>>(config, reference, layout, 1e-12);
}

TEST_CASE("balance over all data ranks' tokens of a micro-batch") {
  auto config = mixtral_config();
  config.level = nn::Level::data;
  const Reference reference = reference_of<Model>(config);
  for (const FoldedLayout& layout : {FoldedLayout{2, {.ep = 2}, 1}, FoldedLayout{4, {.tp = 2, .ep = 4}, 1}})
    check_folded<DataParallel<TensorParallel<Inner>>>(config, reference, layout, 1e-12);
}

TEST_CASE("routers report how they loaded the experts, alike on every rank") {
  const auto report = [](auto& model) {
    model.train_step(make_batch(0, 0, 1, 2));
    std::vector<double> values;
    for (const auto& buffer : model.buffers()) values.insert(values.end(), buffer->value.begin(), buffer->value.end());
    return values;
  };
  DefaultDevice device;
  SingleDevice<Model> one(device, mixtral_config());
  const std::vector<double> expected = report(one);
  double chosen = 0;
  for (std::size_t e = 0; e < 8; ++e) chosen += expected.at(e);
  CHECK(chosen == doctest::Approx(2));
  std::vector<double> largest(2, 0);
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp, tp, pp, ep, etp, edp> mesh(world, {.tp = 2, .ep = 2});
          DataParallel<TensorParallel<Inner>> model(mesh, mixtral_config());
          const auto mine = report(model);
          for (std::size_t i = 0; i < expected.size(); ++i)
            largest[std::size_t(world.rank())] = std::max(largest[std::size_t(world.rank())], std::abs(mine.at(i) - expected[i]));
        }) == 0);
  for (const double difference : largest) CHECK(difference <= 1e-12);
}
