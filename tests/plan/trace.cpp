// SPDX-License-Identifier: Apache-2.0
// covers: weft/device/rehearsal_trace.hpp
// The trace of a rehearsal: the order of a step's work, stored compactly, and only on request.

#include "support/parity.hpp"

#include <chrono>

#include <weft/device/rehearsal_trace.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/runtime/rehearse.hpp>

using namespace weft_test;

namespace {

using Kind = RehearsedTrace::Kind;

template <class Model>
using Parallel = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>, Invariant<tp>>>>;

Batch batch_of(std::size_t rank, std::size_t micro_batches, std::size_t length) {
  Batch batch{.sequences = micro_batches, .length = length, .micro_batches = micro_batches};
  batch.first_sequence = batch.sequences * rank;
  batch.tokens.assign(micro_batches * length, 1);
  batch.targets.assign(micro_batches * length, 2);
  return batch;
}

Rehearsal of_gpt(RehearsedRank rank, int steps, std::size_t micro_batches, int stages) {
  return rehearse(rank, [&](World& world) {
    const Mesh<dp, cp, tp, pp> mesh(world, {.tp = 2, .pp = std::size_t(stages)});
    Parallel<models::BasicGpt<float>> model(mesh, {.vocabulary = 64, .layers = 4, .width = 32, .heads = 4, .sequence = 16});
    optim::AdamW optimizer(model);
    const Batch batch = batch_of(std::size_t(mesh.rank(dp{})), micro_batches, 16);
    for (int step = 0; step < steps; ++step) {
      model.train_step(batch);
      optimizer.step();
      model.evaluate(batch);
    }
  });
}

}  // namespace

TEST_CASE("a trace has the last step's products, attention and messages, each once") {
  const Rehearsal one = of_gpt({.rank = 5, .ranks = 8, .trace = true}, 1, 4, 2);
  const Rehearsal two = of_gpt({.rank = 5, .ranks = 8, .trace = true}, 2, 4, 2);
  REQUIRE(one.trace != nullptr);
  CHECK(one.trace->whole());
  const auto sums = [](const RehearsedTrace& trace) {
    std::map<std::string, double> sum;
    for (std::size_t i = 0; i < trace.size(); ++i) {
      const RehearsedTrace::Event& e = trace[i];
      if (e.kind == Kind::product) sum["product"] += 2.0 * double(e.a) * double(e.b) * double(e.c);
      if (e.kind == Kind::attention) sum["attention"] += e.amount;
      if (e.kind == Kind::kernel) sum["exponentials"] += double(e.b);
      if (e.kind == Kind::send) sum["send"] += e.amount;
      if (e.kind == Kind::receive) sum["receive"] += e.amount;
      if (e.kind == Kind::begin) sum["actions"] += 1;
      if (e.kind == Kind::start) sum["starts"] += 1;
      if (e.kind == Kind::wait) sum["waits"] += 1;
    }
    return sum;
  };
  auto last = sums(*two.trace);
  for (const auto& [what, sum] : sums(*one.trace)) {
    if (what == "starts" || what == "waits") continue;  // an evaluation leaves parameters gathered
    INFO(what);
    CHECK(last[what] == sum);
  }
  CHECK(last["actions"] == 8);
  CHECK(last["starts"] == last["waits"]);
  CHECK(last["starts"] > 0);
  // Except for its evaluation, which is only a forward, a step is the difference between two runs and one.
  const Rehearsal plain = rehearse({.rank = 5, .ranks = 8}, [&](World& world) {
    const Mesh<dp, cp, tp, pp> mesh(world, {.tp = 2, .pp = 2});
    Parallel<models::BasicGpt<float>> model(mesh, {.vocabulary = 64, .layers = 4, .width = 32, .heads = 4, .sequence = 16});
    optim::AdamW optimizer(model);
    model.train_step(batch_of(std::size_t(mesh.rank(dp{})), 4, 16));
    optimizer.step();
  });
  CHECK(plain.trace == nullptr);
  CHECK(last["product"] == plain.product_flops);
  // GELU of [rows, 4 * width / tp] in 2 of 4 layers, forward and backward; stage 1 has the loss: logits [rows, vocabulary / tp].
  CHECK(last["exponentials"] == 2 * 2 * 64 * (4 * 32 / 2) + 2 * 64 * (64 / 2));
  CHECK(last["attention"] == plain.attention_flops);
  CHECK(last["send"] == plain.of("pp", "send").bytes);
  CHECK(last["receive"] == plain.of("pp", "recv").bytes);
}

TEST_CASE("a trace keeps equal micro-batches as numbers") {
  const Rehearsal few = of_gpt({.ranks = 8, .trace = true}, 1, 8, 2), many = of_gpt({.ranks = 8, .trace = true}, 1, 32, 2);
  CHECK(many.trace->size() > 3 * few.trace->size());
  CHECK(many.trace->distinct() < few.trace->distinct() + 4 * 2 * 24 + 32);  // the actions' numbers, and tags that repeat
}

namespace {

struct Ahead {
  int before_actions = 0, flying = 0;  // collectives over dp: started before the first action, at most on their way at once
};

Ahead ahead_of_stage(int zero, int steps) {
  const Rehearsal notes = rehearse({.rank = 2, .ranks = 4, .trace = true}, [&](World& world) {
    const Mesh<dp, tp, pp> mesh(world, {.pp = 2});
    ModelOptions options;
    options.shard.stage = zero;
    FullyShardedDataParallel<TensorParallel<PipelineParallel<models::BasicGpt<float>>, Invariant<tp>>> model(
        mesh, {.vocabulary = 64, .layers = 8, .width = 32, .heads = 4, .sequence = 16}, options);
    optim::AdamW optimizer(model);
    for (int step = 0; step < steps; ++step) {
      model.train_step(batch_of(std::size_t(mesh.rank(dp{})), 4, 16));
      optimizer.step();
    }
  });
  Ahead ahead;
  const RehearsedTrace& trace = *notes.trace;
  int flying = 0;
  bool began = false;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    if (trace[i].kind == Kind::begin) began = true;
    if (trace[i].kind == Kind::wait) --flying;
    if (trace[i].kind != Kind::start || trace.groups[std::size_t(trace[i].group)].axis != "dp") continue;
    if (!began) ++ahead.before_actions;
    else ahead.flying = std::max(ahead.flying, ++flying);
  }
  return ahead;
}

}  // namespace

TEST_CASE("a later stage's gathers are on their way before its first micro-batch") {
  CHECK(ahead_of_stage(1, 1).before_actions == 0);  // the first step records the order
  CHECK(ahead_of_stage(1, 2).before_actions >= 4);  // of four layers, and of the head
  CHECK(ahead_of_stage(2, 2).before_actions >= 4);
  CHECK(ahead_of_stage(3, 2).before_actions == 1);  // a whole unit more would be held
}

TEST_CASE("reductions are on their way together where they hold no whole unit") {
  CHECK(ahead_of_stage(1, 1).flying >= 4);
  CHECK(ahead_of_stage(2, 1).flying <= 2);
  CHECK(ahead_of_stage(3, 1).flying <= 3);  // of two units the gathers
}

TEST_CASE("a message is of the same communicator on the ranks that share one, and of no others") {
  const auto identity = [](int rank, std::string_view axis) {
    const Rehearsal notes = of_gpt({.rank = rank, .ranks = 8, .trace = true}, 1, 4, 2);
    for (const RehearsedTrace::Group& group : notes.trace->groups)
      if (group.axis == axis) return group.identity;
    return std::uint64_t(0);
  };
  CHECK(identity(0, "pp") == identity(4, "pp"));
  CHECK(identity(0, "pp") != identity(1, "pp"));
  CHECK(identity(0, "tp") == identity(1, "tp"));
  CHECK(identity(0, "tp") != identity(4, "tp"));
  CHECK(identity(0, "tp") != 0);
}

TEST_CASE("the traces of 405B parameters, all 16 stages: seconds, and less than 100 MB") {
  if (std::getenv("WEFT_TEST_LONG") == nullptr) return;
  const models::LlamaConfig config{
      .vocabulary = 128256, .layers = 126, .width = 16384, .heads = 128, .kv_heads = 8, .intermediate = 53248, .sequence = 8192};
  const auto started = std::chrono::steady_clock::now();
  std::size_t events = 0, distinct = 0;
  for (int stage = 0; stage < 16; ++stage) {
    const Rehearsal notes = rehearse({.rank = stage * 1024, .ranks = 16384, .trace = true}, [&](World& world) {
      const Mesh<dp, cp, tp, pp> mesh(world, {.tp = 8, .pp = 16});
      ModelOptions options;
      options.shard.stage = 1;
      Parallel<models::BasicLlama<bfloat16>> model(mesh, config, options);
      optim::AdamW optimizer(model);
      model.train_step(batch_of(std::size_t(mesh.rank(dp{})), 32, 8192));
      optimizer.step();
    });
    events += notes.trace->size(), distinct += notes.trace->distinct();
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
  MESSAGE(events << " events, " << distinct << " of them distinct, in " << taken.count() << " s");
  CHECK(4 * events + 100 * distinct < 100'000'000);
}
