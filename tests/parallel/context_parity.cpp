// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/context_parallel.hpp
// Context parallelism gives the loss, gradients, validation loss and logits of one rank: by a ring and by Ulysses, with grouped
// heads, dropout, learned and rotary positions, in every layout of (dp, cp, tp, pp) on up to 8 ranks.

#include "support/context.hpp"

#include <atomic>

#include <weft/parallel/context_parallel.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>

using namespace weft_test;

namespace {

template <class Model, class... Method>
using Plain = DataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>>, Method...>>;
template <class Model, class... Method>
using Sequence = DataParallel<ContextParallel<SequenceParallel<PipelineParallel<Model>>, Method...>>;

template <class Composition>
void check_all(const typename Composition::Config& config, const ModelOptions& options = {}) {
  const Reference reference = reference_of<typename Composition::model_type>(config);
  check_context<Composition>(config, reference, 1, {}, options);
  check_context<Composition>(config, reference, 2, {.cp = 2}, options);
  check_context<Composition>(config, reference, 4, {.cp = 4}, options);
  check_context<Composition>(config, reference, 4, {.cp = 2}, options);
  check_context<Composition>(config, reference, 4, {.tp = 2, .cp = 2}, options);
  check_context<Composition>(config, reference, 8, {.tp = 2, .cp = 4}, options);
  check_context<Composition>(config, reference, 8, {.cp = 4, .pp = 2}, options);
  check_context<Composition>(config, reference, 8, {.tp = 2, .cp = 2, .pp = 2}, options);
  check_context<Composition>(config, reference, 8, {.tp = 2, .cp = 2}, options);
}

/// The error on every rank when the model is made or trained; "different" if ranks disagree.
template <class Composition>
std::string refusal(const typename Composition::Config& config, const Degrees& degrees, std::size_t length) {
  const std::size_t ranks = degrees.cp * degrees.tp;
  std::vector<std::string> texts(ranks, "nothing");
  CHECK(run(RunOptions{.ranks = int(ranks)}, [&](World& world) {
          Mesh<dp, cp, tp, pp> mesh(world, degrees);
          try {
            Composition model(mesh, config);
            model.train_step({.tokens = std::vector<std::int32_t>(length),
                              .targets = std::vector<std::int32_t>(length),
                              .sequences = 1,
                              .length = length});
          } catch (const Error& error) {
            texts[std::size_t(world.rank())] = error.what();
          }
        }) == 0);
  for (const std::string& text : texts)
    if (text != texts[0]) return "different: " + text + " / " + texts[0];
  return texts[0];
}

}  // namespace

using Gpt = models::BasicGpt<double>;
using Llama = models::BasicLlama<double>;

TEST_CASE("gpt, ring") { check_all<Plain<Gpt, Ring>>(gpt_config()); }
TEST_CASE("gpt, Ulysses") { check_all<Plain<Gpt, Ulysses>>(gpt_config()); }
TEST_CASE("llama, ring or Ulysses, sequence parallel") {
  check_all<Sequence<Llama>>(llama_config());
  check_all<Sequence<Llama>>(llama_config(), ModelOptions{.context = ContextMethod::ulysses});
}

TEST_CASE("gpt, ring, every stage of ZeRO") {
  using Composition = FullyShardedDataParallel<ContextParallel<SequenceParallel<PipelineParallel<Gpt>>, Ring>>;
  const Reference reference = reference_of<Gpt>(gpt_config());
  for (int stage = 1; stage <= 3; ++stage) {
    const ModelOptions options{.shard = {.stage = stage}, .pipeline = {.schedule = schedule::choose("zbv")}};
    check_context<Composition>(gpt_config(), reference, 4, {.cp = 2}, options);
    check_context<Composition>(gpt_config(), reference, 8, {.cp = 2, .pp = 2}, options);
  }
}

TEST_CASE("logits of a few tokens, which cp does not divide") {
  const std::vector<std::int32_t> tokens{3, 1, 4};
  std::vector<double> expected;
  {
    DefaultDevice device;
    expected = SingleDevice<Gpt>(device, gpt_config()).logits(tokens);
  }
  for (const Degrees& degrees : {Degrees{.cp = 4}, Degrees{.tp = 2, .cp = 2}, Degrees{.cp = 2, .pp = 2}}) {
    std::atomic<int> wrong = 0;
    CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
            Mesh<dp, cp, tp, pp> mesh(world, degrees);
            const auto logits = Plain<Gpt, Ring>(mesh, gpt_config()).logits(tokens);
            wrong += logits.size() != expected.size();
            for (std::size_t i = 0; i < std::min(logits.size(), expected.size()); ++i)
              wrong += !(std::abs(logits[i] - expected[i]) <= 1e-13);
          }) == 0);
    CHECK(wrong == 0);
  }
}

TEST_CASE("sequences that cp cannot divide are refused on every rank, with the numbers that would work") {
  models::GptConfig config = gpt_config();
  config.sequence = 12;
  CHECK(refusal<Plain<Gpt, Ring>>(config, {.cp = 4}, 12) ==
        "weft: sequence(12) % (2 * cp(4)) != 0: every rank holds two chunks of a sequence, one early and one late; sequence can "
        "be 8 or 16, cp 1, 2, 3 or 6");
  CHECK(refusal<Plain<Gpt, Ring>>(gpt_config(), {.cp = 4}, 4) ==
        "weft: sequence(4) % (2 * cp(4)) != 0: context parallelism cuts a sequence into two chunks for each rank; sequence can "
        "be 8");
  config = gpt_config();
  config.sequence = 24, config.width = 24, config.heads = 3, config.kv_heads = 3;
  CHECK(refusal<Plain<Gpt, Ulysses>>(config, {.cp = 2}, 24) ==
        "weft: heads(3) / tp(1) = 3 % cp(2) != 0: Ulysses gives every rank as many whole heads; cp can be 1, 3 (with a ring of "
        "keys and values instead of Ulysses, any number)");
}
