// SPDX-License-Identifier: Apache-2.0
// Rehearsals compared with real ranks with an optimizer of whole matrices: the assignment of matrices to ranks, and its messages,
// are those of the real run.

#include "plan/rehearsed.hpp"

#include <chrono>

using namespace weft_test;

namespace {

template <class Model>
using Parallel = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>, Invariant<tp>>>>;
template <class Model>
using WithExperts = FullyShardedDataParallel<ContextParallel<TensorParallel<ExpertParallel<PipelineParallel<Model>>>>>;

template <class Composition>
void check_muon(const typename Composition::Config& config, const Case& c) {
  check<Composition, GridOf<typename Composition::model_type>, optim::Muon>(config, c);
}

// Fewer key-value heads than ranks of tp: two ranks hold the same ones.
const models::GptConfig gpt{.vocabulary = vocabulary, .layers = 4, .width = 64, .heads = 4, .kv_heads = 2, .sequence = sequence};
const models::LlamaConfig llama{
    .vocabulary = vocabulary, .layers = 4, .width = 64, .heads = 4, .kv_heads = 2, .sequence = sequence};

}  // namespace

TEST_CASE("gpt with Muon: a rehearsed rank keeps, computes and sends the same as the real one") {
  for (const optim::Work work : {optim::Work::home, optim::Work::everywhere})
    for (const Case& c :
         {Case{.micro_batches = 2}, Case{.dp = 2, .zero = 0, .work = work}, Case{.dp = 2, .zero = 1, .micro_batches = 2},
          Case{.dp = 3, .zero = 2, .work = work}, Case{.dp = 2, .zero = 3, .work = work},
          Case{.dp = 4, .zero = 3, .replicate = 2}, Case{.tp = 2, .work = work}, Case{.tp = 4, .work = work},
          Case{.dp = 2, .tp = 2, .zero = 3, .work = work}, Case{.pp = 2, .micro_batches = 4, .work = work},
          Case{.pp = 2, .schedule = "zbv", .micro_batches = 4},
          Case{.dp = 2, .pp = 2, .zero = 2, .micro_batches = 2, .work = work},
          Case{.dp = 2, .tp = 2, .pp = 2, .zero = 1, .micro_batches = 2, .work = work},
          Case{.dp = 2, .zero = 2, .micro_batches = 2, .reproducible = true}})
      if (c.work == work) check_muon<Parallel<models::BasicGpt<float>>>(gpt, c);
}
TEST_CASE("llama in bfloat16 with Muon: a rehearsed rank keeps, computes and sends the same as the real one") {
  for (const Case& c : {Case{.dp = 2, .zero = 0}, Case{.dp = 2, .zero = 1, .micro_batches = 2}, Case{.dp = 4, .zero = 3},
                        Case{.dp = 2, .tp = 2, .zero = 2}, Case{.cp = 2}, Case{.dp = 2, .cp = 2, .zero = 3},
                        Case{.tp = 2, .pp = 2, .micro_batches = 4}})
    check_muon<Parallel<models::BasicLlama<bfloat16>>>(llama, c);
}
TEST_CASE("mixtral with Muon: a rehearsed rank keeps, computes and sends the same as the real one") {
  for (const Case& c :
       {Case{.dp = 2, .ep = 2}, Case{.dp = 4, .ep = 2, .zero = 1}, Case{.dp = 2, .ep = 2, .zero = 3},
        Case{.dp = 2, .tp = 2, .ep = 2, .etp = 2, .zero = 1}, Case{.dp = 2, .pp = 2, .ep = 2, .micro_batches = 4}})
    check_muon<WithExperts<models::BasicMixtral<float>>>(mixtral, c);
}

TEST_CASE("of the ranks of a stage the one that needs the most for whole matrices is rehearsed, too") {
  const auto check_largest = [](const Case& c, const auto& program) {
    std::size_t largest = 0;
    for (int rank = 0; rank < int(c.world()); ++rank)
      largest = std::max(largest, rehearse({.rank = rank, .ranks = int(c.world())}, program).peak);
    const std::vector<RehearsedStage> stages = rehearse_stages({.ranks = int(c.world())}, program);
    INFO(name_of(c));
    std::size_t found = 0, firsts = 0;
    for (const RehearsedStage& stage : stages) {
      found = std::max(found, stage.notes.peak);
      firsts = std::max(firsts, stage.rank % int(c.world() / c.pp) == 0 ? stage.notes.peak : 0);
    }
    if (std::getenv("SHOW"))
      std::printf("%s: largest %zu found %+.3f %% of first ranks %+.3f %%\n", name_of(c).c_str(), largest,
                  100.0 * (double(found) / double(largest) - 1), 100.0 * (double(firsts) / double(largest) - 1));
    CHECK(found == largest);
    return found > firsts;
  };
  const models::GptConfig three{.vocabulary = 64, .layers = 3, .width = 64, .heads = 4, .sequence = 16};
  int differ = 0;
  for (const Case& c : {Case{.dp = 8}, Case{.dp = 4, .zero = 1}, Case{.dp = 4, .tp = 2, .zero = 2}, Case{.dp = 8, .zero = 3},
                        Case{.dp = 3, .pp = 3, .micro_batches = 3}, Case{.dp = 4, .work = optim::Work::everywhere}})
    differ += check_largest(c, [&](World& world) {
      const Mesh<dp, cp, tp, pp> mesh(world, {.tp = c.tp, .pp = c.pp});
      ModelOptions options;
      options.shard.stage = c.zero;
      Parallel<models::BasicGpt<float>> model(mesh, three, options);
      optim::Muon optimizer(model, {.work = c.work});
      Batch batch{.sequences = c.micro_batches, .length = 16, .micro_batches = c.micro_batches};
      batch.tokens.assign(batch.sequences * 16, 1);
      batch.targets.assign(batch.sequences * 16, 2);
      model.train_step(batch);
      optimizer.step();
    });
  CHECK(differ > 2);
  for (const Case& c : {Case{.dp = 2, .ep = 2}, Case{.dp = 4, .ep = 2, .zero = 1}, Case{.dp = 8, .ep = 2, .zero = 3},
                        Case{.dp = 2, .tp = 2, .ep = 2, .etp = 2}})
    check_largest(c, [&](World& world) {
      (void)train<WithExperts<models::BasicMixtral<float>>, GridOf<models::BasicMixtral<float>>, optim::Muon>(world, mixtral, c);
    });
}

TEST_CASE("405B parameters on 16,384 ranks with Muon: the plan of all of them in a moment") {
  const models::LlamaConfig large{
      .vocabulary = 128256, .layers = 126, .width = 16384, .heads = 128, .kv_heads = 8, .intermediate = 53248, .sequence = 8192};
  const auto started = std::chrono::steady_clock::now();
  const Rehearsal notes = rehearse({.rank = 0, .ranks = 16384}, [&](World& world) {
    Mesh<dp, cp, tp, pp> mesh(world, {.tp = 8, .pp = 16});
    Parallel<models::BasicLlama<bfloat16>> model(mesh, large, {.shard = {.stage = 0}});
    optim::Muon optimizer(model);
    Batch batch{.sequences = 16, .length = 8192, .micro_batches = 16};
    batch.tokens.assign(16 * 8192, 1);
    batch.targets.assign(16 * 8192, 2);
    model.train_step(batch);
    optimizer.step();
  });
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
  CHECK(taken.count() < 10);  // 0.2 s without other load
  // It is the home of one of the stage's 21 largest matrices, in float: 128 data-parallel ranks have its eight pieces, one of
  // them this rank.
  const double matrix = 4.0 * 16384 * 53248;
  CHECK(notes.of("world", "all_to_all_v").bytes == doctest::Approx(matrix * (128 - 1.0 / 8)).epsilon(0.01));
}
