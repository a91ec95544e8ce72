// SPDX-License-Identifier: Apache-2.0
// Recomputation in backward changes no bit of any gradient, on one rank and under tensor, sequence, context and pipeline
// parallelism with a split backward, and needs the documented memory, by the arena's counters.

#include <atomic>
#include <map>

#include "support/experts.hpp"

#include <weft/autograd/recompute.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>

using namespace weft_test;

namespace {

using Gradients = std::map<std::string, std::vector<double>>;

template <class Model>
Gradients gradients_of(Model& model, const Batch& batch) {
  Gradients gradients;
  model.train_step(batch);
  model.for_each_state([&](ParameterState& state) {
    for_each_gradient(state, [&](std::size_t, double value) { gradients[state.name()].push_back(value); });
  });
  return gradients;
}

template <class Model>
void check_one_rank(typename Model::Config config) {
  DefaultDevice device;
  Gradients plain;
  for (const auto choice : {Recomputation::none, Recomputation::selective, Recomputation::full}) {
    config.recompute = choice;
    SingleDevice<Model> model(device, config);
    const Gradients mine = gradients_of(model, make_batch(0, 0, 1, 2));
    if (choice == Recomputation::none) plain = mine;
    CHECK(mine == plain);
  }
}

/// Bytes that a step needs in addition to the model's memory.
template <class Model>
double step_bytes(typename Model::Config config, Recomputation choice, std::size_t rows) {
  DefaultDevice device;
  config.recompute = choice;
  SingleDevice<Model> model(device, config);
  Batch batch{.tokens = std::vector<std::int32_t>(rows),
              .targets = std::vector<std::int32_t>(rows),
              .sequences = rows / config.sequence,
              .length = config.sequence};
  model.train_step(batch);
  const auto& use = device.arena().use();
  const std::size_t kept = use.current;
  device.arena().reset_peak();
  model.train_step(batch);
  return double(use.peak - kept);
}

}  // namespace

TEST_CASE("the same bits on one rank") {
  check_one_rank<models::Gpt>(gpt_config());
  check_one_rank<models::Llama>(llama_config());
  check_one_rank<models::Mixtral>(mixtral_config());
}

TEST_CASE("the same bits under sequence, context and pipeline parallelism with a split backward") {
  using Composition = DataParallel<ContextParallel<SequenceParallel<PipelineParallel<models::Llama>>>>;
  std::atomic<int> same = 0;
  CHECK(run(RunOptions{.ranks = 8}, [&](World& world) {
          Mesh<dp, cp, tp, pp> mesh(world, {.tp = 2, .cp = 2, .pp = 2});
          Gradients plain;
          for (const auto choice : {Recomputation::none, Recomputation::selective, Recomputation::full}) {
            models::LlamaConfig config = llama_config();
            config.recompute = choice;
            Composition model(mesh, config, {.pipeline = {.schedule = schedule::choose("zb-h1")}});
            const Gradients mine = gradients_of(model, make_batch(0, 0, 1, 4));
            if (choice == Recomputation::none) plain = mine;
            same += mine == plain && !plain.empty();
          }
        }) == 0);
  CHECK(same == 24);
}

TEST_CASE("memory: a GPT block keeps 16, 10 and 1 times its hidden state, a Llama block 8 + 3 i / h, 6 + 2 i / h and 1") {
  constexpr std::size_t layers = 12, width = 128, rows = 256;
  const double hidden = double(rows * width * sizeof(float)),
               statistics = 0.05;  // statistics of norms and softmax are comparatively small
  const auto check = [&](auto bytes_of, double none, double selective, double full) {
    const double kept_none = bytes_of(Recomputation::none), kept_selective = bytes_of(Recomputation::selective),
                 kept_full = bytes_of(Recomputation::full);
    INFO("bytes of a step, in hidden states of a block: none " << kept_none / hidden / layers << ", selective "
                                                               << kept_selective / hidden / layers << ", full "
                                                               << kept_full / hidden / layers);
    // The peak is in the last block's backward, whose temporaries differ by at most one block's state.
    CHECK(std::abs((kept_none - kept_selective) / hidden / layers - (none - selective)) <=
          (none - selective) / layers * 2 + statistics);
    CHECK(std::abs((kept_none - kept_full) / hidden / layers - (none - full)) <= none / layers * 2 + statistics);
  };
  const models::GptConfig gpt{.vocabulary = 32, .layers = layers, .width = width, .heads = 4, .sequence = 64, .dropout = 0.1};
  check([&](Recomputation choice) { return step_bytes<models::Gpt>(gpt, choice, rows); }, 16, 10, 1);
  const models::LlamaConfig llama{
      .vocabulary = 32, .layers = layers, .width = width, .heads = 4, .intermediate = 256, .sequence = 64};
  check([&](Recomputation choice) { return step_bytes<models::Llama>(llama, choice, rows); }, 8 + 3 * 2, 6 + 2 * 2, 1);
}
