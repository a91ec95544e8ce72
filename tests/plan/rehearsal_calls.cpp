// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/peer_progress.hpp
// Rehearsals compared with real ranks for a program's uses of a model other than training, on the stages of a pipeline: reading
// parameters of another stage or of an expert's rank, and generating tokens.

#include "plan/rehearsed.hpp"

#include <weft/generation/generate.hpp>
#include <weft/pipeline/peer_progress.hpp>

using namespace weft_test;

namespace {

using Model = models::BasicGpt<float>;
using Composition = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;
const models::GptConfig config{.vocabulary = vocabulary, .layers = 4, .width = 64, .heads = 4, .sequence = sequence};

Seen seen_of(World& world) {
  const MemoryUse& use = world.device().arena().use();
  return {use, use.peak, {}};
}

struct Layout {
  int world;
  Degrees degrees;
  const char* schedule = "1f1b";
  int zero = 0;
};
template <class F>
void check_calls(const F& calls) {
  for (const Layout& layout :
       {Layout{2, {.pp = 2}}, Layout{4, {.tp = 2, .pp = 2}}, Layout{4, {.pp = 4}}, Layout{2, {.pp = 2}, "interleaved"},
        Layout{2, {.pp = 2}, "zbv"}, Layout{4, {.pp = 2}, "1f1b", 3}, Layout{2, {.tp = 2}}})
    compare(
        layout.world,
        weft::detail::joined({"tp ", layout.degrees.tp, " pp ", layout.degrees.pp, " ", layout.schedule, " zero ", layout.zero}),
        [&](World& world) {
          const Mesh<dp, tp, pp> mesh(world, layout.degrees);
          ModelOptions options;
          options.shard.stage = layout.zero;
          options.pipeline.schedule = schedule::choose(layout.schedule);
          Composition model(mesh, config, options);
          calls(model, mesh);
          return seen_of(world);
        });
}

}  // namespace

TEST_CASE("parameters and gradients of any stage have their sizes, and are read with the messages of a real run") {
  check_calls([](Composition& model, const Mesh<dp, tp, pp>& mesh) {
    Batch batch{.sequences = 2, .length = sequence, .micro_batches = 2};
    batch.first_sequence = batch.sequences * std::size_t(mesh.rank(dp{}));
    batch.tokens.assign(2 * sequence, 1);
    batch.targets.assign(2 * sequence, 2);
    model.train_step(batch);
    for (const char* name :
         {"transformer.wte.weight", "transformer.h.0.ln_1.weight", "transformer.h.3.mlp.c_fc.weight", "transformer.ln_f.bias"}) {
      const std::size_t size = std::string(name).find("wte") != std::string::npos    ? vocabulary * 64
                               : std::string(name).find("c_fc") != std::string::npos ? 4 * 64 * 64
                                                                                     : 64;
      if (model.parameter(name).size() != size || model.gradient(name).size() != size) throw Error(name);
    }
  });
  // A name that no stage has is refused as in a real run.
  std::string text;
  try {
    rehearse({.rank = 1, .ranks = 2}, [](World& world) {
      const Mesh<dp, tp, pp> mesh(world, {.pp = 2});
      Composition(mesh, config).parameter("transformer.h.4.ln_1.weight");
    });
  } catch (const UsageError& error) {
    text = error.what();
  }
  CHECK(text.starts_with("weft: the model has no parameter transformer.h.4.ln_1.weight; near it are transformer.h."));
}

TEST_CASE("sums over tp in pieces have the messages of a real run") {
  const auto train = [](World& world, std::size_t piece_bytes) {
    const Mesh<dp, tp, pp> mesh(world, {.tp = 2});
    Composition model(mesh, config, {.tensor = {.piece_bytes = piece_bytes}});
    Batch batch{.sequences = 4, .length = sequence, .micro_batches = 1};  // 256 rows: 4 pieces
    batch.tokens.assign(4 * sequence, 1);
    batch.targets.assign(4 * sequence, 2);
    model.train_step(batch);
    return seen_of(world);
  };
  compare(2, "pieces", [&](World& world) { return train(world, 1024); });
  const auto calls = [&](std::size_t piece_bytes) {
    const Rehearsal notes = rehearse({.ranks = 2}, [&](World& world) { (void)train(world, piece_bytes); });
    std::uint64_t all = 0;
    for (const Rehearsal::Messages& messages : notes.messages) all += messages.calls;
    return all;
  };
  CHECK(calls(1024) == calls(0) + 3 * 4 * 4);  // 4 blocks have 4 sums, two forward and two backward, each in 4 pieces
}

TEST_CASE("tokens are generated on the stages of a pipeline with the messages of a real run") {
  const std::vector<std::vector<std::int32_t>> prompts{{3, 1, 4, 1, 5}, {9}, {2, 6, 5}};
  check_calls([&](Composition& model, const Mesh<dp, tp, pp>&) {
    const auto made = generate(model, prompts, {.max_new_tokens = 4});
    if (made.size() != 3 || made[0].size() != 4) throw Error("tokens are missing");
    KeyValueCache cache(3, 8);
    if (model.decode(cache, prompts).size() != 3 * vocabulary) throw Error("logits are missing");
    if (model.decode(cache, std::vector<std::vector<std::int32_t>>{{1}, {}, {2, 3}}).size() != 3 * vocabulary)
      throw Error("logits are missing");
  });
}

TEST_CASE("predictions have their shape on every stage of a pipeline, with the messages of a real run") {
  check_calls([](Composition& model, const Mesh<dp, tp, pp>& mesh) {
    for (const Gather gather : {Gather::share, Gather::whole})
      for (const std::size_t parts : {1, 2}) {
        Batch batch{.sequences = 4, .length = sequence, .micro_batches = parts};
        batch.first_sequence = batch.sequences * std::size_t(mesh.rank(dp{}));
        batch.tokens.assign(batch.sequences * sequence, 1);
        batch.targets.assign(batch.sequences * sequence, 2);
        const Prediction made = model.predict(batch, gather);
        const std::size_t shares = gather == Gather::whole ? std::size_t(mesh.size(dp{})) : 1;
        if (made.shape.rank() != 2 || made.shape[0] != shares * batch.sequences * sequence || made.shape[1] != vocabulary ||
            made.values.size() != made.shape.size())
          throw Error(made.shape.text());
      }
  });
}

TEST_CASE("every rank has the names of all experts: it reads those of others, and freezes them") {
  const std::vector<std::string> names = [] {
    DefaultDevice device;
    return SingleDevice<models::BasicMixtral<float>>(device, mixtral).parameter_names();
  }();
  for (const Layout& layout : {Layout{2, {.ep = 2}}, Layout{4, {.ep = 2, .pp = 2}}, Layout{2, {.ep = 2}, "1f1b", 3}})
    compare(layout.world, weft::detail::joined({"pp ", layout.degrees.pp, " zero ", layout.zero}), [&](World& world) {
      const Mesh<dp, tp, pp, ep, etp, edp> mesh(world, layout.degrees);
      ModelOptions options;
      options.shard.stage = layout.zero;
      options.freeze = {"*.1.block_sparse_moe.experts.1.*"};
      FullyShardedDataParallel<TensorParallel<ExpertParallel<PipelineParallel<models::BasicMixtral<float>>>>> model(mesh, mixtral,
                                                                                                                    options);
      if (model.parameter_names() != names) throw Error("names differ between ranks");
      Batch batch{.sequences = 2, .length = sequence, .micro_batches = 2};
      batch.first_sequence = batch.sequences * std::size_t(mesh.rank(dp{}));
      batch.tokens.assign(2 * sequence, 1);
      batch.targets.assign(2 * sequence, 2);
      model.train_step(batch);
      for (const std::size_t expert : {0, 1})
        for (const std::size_t block : {0, 1, 3}) {
          const std::string name =
              weft::detail::joined({"model.layers.", block, ".block_sparse_moe.experts.", expert, ".w2.weight"});
          const std::size_t size = model.parameter(name).size();
          if (size == 0 || size % mixtral.width != 0 || model.gradient(name).size() != size) throw Error(name);
        }
      return seen_of(world);
    });
}
