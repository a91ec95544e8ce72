// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/stage_units.hpp weft/pipeline/stage_cut.hpp weft/pipeline/learn_shapes.hpp
// Stages with different numbers of layers: loss, gradients, norm, evaluation and logits are those of one rank under every
// schedule, also where the first stage has the embedding alone and the last the head alone; reproducible runs have the same bits.

#include <weft/mesh/stage_layers.hpp>
#include <weft/pipeline/learn_shapes.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/pipeline/stage_cut.hpp>
#include <weft/pipeline/stage_units.hpp>

#include "support/field_models.hpp"
#include "support/reproducible.hpp"
#include "support/uneven_stages.hpp"

using namespace weft_test;

namespace {

template <class Model>
std::string refusal(int ranks, const typename Model::Config& config, const std::function<Counts(int rank)>& layers) {
  std::vector<std::string> texts(std::size_t(ranks), "nothing");
  (void)runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
    const Mesh<dp, tp, pp> mesh(world, {.pp = std::size_t(ranks)});
    try {
      DataParallel<TensorParallel<PipelineParallel<Model>>> model(mesh, config, {.pipeline = {.layers = layers(world.rank())}});
    } catch (const Error& error) {
      texts[std::size_t(world.rank())] = error.what();
    }
  });
  for (const std::string& text : texts)
    if (text != texts[0]) return "different: " + text + " / " + texts[0];
  return texts[0];
}

}  // namespace

TEST_CASE("every schedule with stages that differ is one rank") {
  using Model = models::BasicGpt<double>;
  const auto config = of_layers(gpt_config(), 7);
  check_uneven<DataParallel<TensorParallel<PipelineParallel<Model>>>>(of_seven, config, reference_of<Model>(config));
}

TEST_CASE("stages that differ, with shards of parameters and with tensor parallelism, are one rank") {
  const auto check = [](const auto& config, auto model) {
    using Model = typename decltype(model)::type;
    using Composition = FullyShardedDataParallel<SequenceParallel<PipelineParallel<Model>>>;
    CHECK(check_uneven<Composition>(of_seven_sharded, config, reference_of<Model>(config)) == of_seven_sharded.size());
  };
  SUBCASE("gpt") { check(of_layers(gpt_config(), 7), std::type_identity<models::BasicGpt<double>>()); }
  SUBCASE("llama") { check(of_layers(llama_config(), 7), std::type_identity<models::BasicLlama<double>>()); }
}

TEST_CASE("stages that differ, reproducible: the bits of equal stages, and of one rank") {
  using Model = models::Gpt;
  models::GptConfig config = of_layers(gpt_config(), 6);
  config.vocabulary = reproducible_vocabulary, config.sequence = reproducible_length;
  const auto bits_of = [&](const Uneven& one) {
    Run20 result;
    std::mutex mutex;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(one.world), .threads_per_rank = 1}, [&](World& world) {
            const Mesh<dp, tp, pp> mesh(world, one.degrees);
            DataParallel<TensorParallel<PipelineParallel<Model>>> model(
                mesh, config,
                {.pipeline = {.schedule = schedule::choose(one.schedule), .layers = one.layers},
                 .numerics = {.reproducible = true}});
            train_20(model, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), 4, result, mutex, world.rank() == 0);
          }) == 0);
    return result;
  };
  const Run20 equal = bits_of({"1f1b", {.pp = 2}, {}, 4, 2});
  REQUIRE(equal.losses.size() == 21);
  for (const Uneven& one :
       {Uneven{"1f1b", {}, {}, 4, 1}, Uneven{"1f1b", {.pp = 4}, {0, 1, 4, 1}}, Uneven{"1f1b", {.pp = 2}, {5, 1}},
        Uneven{"zbv", {.pp = 2}, {3, 1, 2, 0}}, Uneven{"interleaved", {.pp = 2}, {1, 2, 3, 0}, 4, 2}}) {
    INFO(std::string(one.schedule) << ", layers " << mesh_layout::counts_text(one.layers));
    CHECK(bits_of(one) == equal);
  }
}

TEST_CASE("a stack by given numbers of units") {
  const MlpConfig config{.layers = 5};  // units: the first, five, the last
  std::vector<double> losses;
  for (const Counts& layers : {Counts{}, Counts{1, 1, 3, 2}, Counts{4, 1, 1, 1}}) {
    double loss = 0;
    CHECK(runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
            const Mesh<dp, tp, pp> mesh(world, {.pp = 4});
            DataParallel<TensorParallel<PipelineParallel<Mlp>>> model(mesh, config, {.pipeline = {.layers = layers}});
            optim::Sgd optimizer(model, {.learning_rate = 0.1});
            const auto batch = Mlp::make_batch(config, 0, 0, 1, 2);
            model.train_step(batch);
            optimizer.step();
            const double after = model.evaluate(batch);
            if (world.rank() == 0) loss = after;
          }) == 0);
    losses.push_back(loss);
  }
  CHECK(losses[0] > 0);
  CHECK(losses[1] == doctest::Approx(losses[0]).epsilon(1e-13));
  CHECK(losses[2] == doctest::Approx(losses[0]).epsilon(1e-13));
}

TEST_CASE("numbers that do not fit are one error on every rank") {
  const auto config = of_layers(gpt_config(), 4);
  const auto same = [](Counts layers) { return [layers](int) { return layers; }; };
  CHECK(refusal<models::Gpt>(2, config, same({1, 3})) == "nothing");
  CHECK(refusal<models::Gpt>(2, config, same({1, 2})) ==
        "weft: layers of the stages (1, 2): their sum is 3, but the model has 4 layers: give numbers that sum to 4");
  CHECK(refusal<models::Gpt>(2, config, same({4})) ==
        "weft: layers of the stages (4): 1 numbers, but the pipeline has 2 stages (pp * stages per rank)");
  CHECK(refusal<Mlp>(2, {.layers = 1}, same({0, 3})).starts_with("weft: units of the stages (0, 3): "));
  const std::string differ = refusal<models::Gpt>(2, config, [](int rank) { return rank == 0 ? Counts{1, 3} : Counts{3, 1}; });
  CHECK(differ.find("pipeline.layers") != std::string::npos);
}
