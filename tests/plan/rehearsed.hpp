// SPDX-License-Identifier: Apache-2.0
#pragma once
// Compares every rank of a real run of thread ranks with its rehearsal. The bytes that it keeps, by category, its FLOPs, and its
// messages, by axis and operation, are equal, and its peak is between the two peaks of the rehearsals.

#include "support/counted_group.hpp"
#include "support/parity.hpp"

#include <sstream>

#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/runtime/rehearse.hpp>

namespace weft_test {

struct Case {
  std::size_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, etp = 1;
  int zero = 0;
  std::string schedule = "1f1b";
  std::size_t micro_batches = 1, micro_batch = 2;
  bool ulysses = false;
  std::size_t replicate = 1, secondary = 0;
  Recomputation recompute = Recomputation::none;
  bool reproducible = false, quantised = false, offload = false, float_gradients = false;
  optim::Work work = optim::Work::home;  // of optimizers that have it
  std::size_t world() const { return dp * tp * pp * cp; }
};

inline constexpr std::size_t sequence = 64, vocabulary = 256;

// Every token goes to every expert: as even as a rehearsal assumes.
inline const models::MixtralConfig mixtral{.vocabulary = vocabulary,
                                           .layers = 4,
                                           .width = 64,
                                           .heads = 4,
                                           .kv_heads = 2,
                                           .sequence = sequence,
                                           .experts = 2,
                                           .top_k = 2};

struct Seen {
  MemoryUse use;
  std::size_t peak = 0;
  RehearsedWork work;  // messages and FLOPs of a real rank
};

template <class Model>
inline constexpr bool of_fields = requires(const typename Model::Config& config) {
  Model::make_batch(config, 0, 0, 1, 1);
};
template <class Model>
inline constexpr bool of_experts = requires(const typename Model::Config& config) {
  config.experts;
};
/// The mesh of weft's models, and of stacks of fields. A Module with a loss has no pipeline: Mesh<dp, tp>.
template <class Model>
using GridOf =
    std::conditional_t<of_fields<Model>, Mesh<dp, tp, pp>,
                       std::conditional_t<of_experts<Model>, Mesh<dp, cp, tp, pp, ep, etp, edp>, Mesh<dp, cp, tp, pp>>>;

// Two steps and an evaluation, as a program would do them.
template <class Composition, class Grid = GridOf<typename Composition::model_type>, class Optimizer = optim::AdamW>
Seen train(World& world, typename Composition::Config config, const Case& c) {
  if constexpr (requires { config.recompute; }) config.recompute = c.recompute;
  using Model = typename Composition::model_type;
  constexpr bool fields = of_fields<Model>, experts = of_experts<Model>;
  Degrees degrees{.tp = c.tp, .pp = c.pp};
  if constexpr (experts) degrees.ep = c.ep, degrees.etp = c.etp;
  if constexpr (!fields) degrees.cp = c.cp;
  const Grid mesh(world, degrees);
  ModelOptions options;
  options.shard.stage = c.zero;
  options.shard.replicate = c.replicate;
  options.shard.secondary = c.secondary;
  options.shard.quantised_gather = c.quantised;
  if (c.offload) options.shard.offload = Offload::host();
  options.context = c.ulysses ? ContextMethod::ulysses : ContextMethod::ring;
  options.pipeline.schedule = schedule::choose(c.schedule);
  options.numerics.reproducible = c.reproducible;
  if (c.float_gradients) options.numerics.gradient = DataType::float32;
  Composition model(mesh, config, options);
  typename Optimizer::Options of_optimizer;
  if constexpr (requires { of_optimizer.work; }) of_optimizer.work = c.work;
  Optimizer optimizer(model, of_optimizer);
  auto batch = [&] {
    if constexpr (fields) {
      return Model::make_batch(config, 0, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), c.micro_batches);
    } else {
      Batch made{.sequences = c.micro_batches * c.micro_batch, .length = sequence, .micro_batches = c.micro_batches};
      made.first_sequence = made.sequences * std::size_t(mesh.rank(dp{}));
      for (std::size_t i = 0; i < made.sequences * made.length; ++i) {
        made.tokens.push_back(int(i * 7 % vocabulary));
        made.targets.push_back(int(i * 11 % vocabulary));
      }
      return made;
    }
  }();
  for (int step = 0; step < 2; ++step) {
    model.train_step(batch);
    optimizer.step();
    ++batch.step;
  }
  model.evaluate(batch);
  const MemoryUse& use = world.device().arena().use();
  return {use, use.peak, {}};
}

inline std::string name_of(const Case& c) {
  std::ostringstream text;
  text << "dp " << c.dp << " tp " << c.tp << " pp " << c.pp << " cp " << c.cp << (c.ulysses ? "u" : "") << " ep " << c.ep
       << " etp " << c.etp << " zero " << c.zero << " " << c.schedule << " micro-batches " << c.micro_batches << " replicate "
       << c.replicate << " secondary " << c.secondary << " recompute " << int(c.recompute)
       << (c.reproducible ? " reproducible" : "") << (c.quantised ? " quantised" : "") << (c.offload ? " offload" : "")
       << (c.float_gradients ? " float gradients" : "") << (c.work == optim::Work::everywhere ? " everywhere" : "");
  return text.str();
}

/// Compares every rank of a real run of program(world), which returns a Seen of its memory, with its rehearsal.
template <class F>
void compare(int world, const std::string& name, const F& program, std::uint64_t steps = 0, double expert_skew = 1) {
  std::vector<Seen> real(static_cast<std::size_t>(world));
  const int code = runtime::run(runtime::RunOptions{.ranks = world, .threads_per_rank = 1}, [&](World& of_threads) {
    Rehearsal counts;
    of_threads.device().count(counts);
    World rank(counted(of_threads.communicator(), counts), of_threads.device());
    Seen seen = program(rank);
    seen.work = counts;
    real[std::size_t(rank.rank())] = std::move(seen);
  });
  REQUIRE(code == 0);
  for (int rank = 0; rank < world; ++rank) {
    const Seen& there = real[std::size_t(rank)];
    Seen seen;
    const Rehearsal notes =
        rehearse({.rank = rank, .ranks = world, .expert_skew = expert_skew}, [&](World& alone) { seen = program(alone); });
    INFO(name << ", rank " << rank);
    for (std::size_t category = 0; category < weft::detail::memory_categories; ++category)
      CHECK(seen.use.by_category[category] == there.use.by_category[category]);
    CHECK(seen.use.current == there.use.current);
    CHECK(notes.steps == steps);
    CHECK(notes.products > 0);
    CHECK(notes.products == there.work.products);
    CHECK(notes.product_flops == there.work.product_flops);
    CHECK(notes.attentions == there.work.attentions);
    CHECK(notes.attention_flops == there.work.attention_flops);
    const Rehearsal early = rehearse({.rank = rank, .ranks = world, .early = true, .expert_skew = expert_skew},
                                     [&](World& alone) { (void)program(alone); });
    CHECK(early.peak <= there.peak);
    CHECK(there.peak <= notes.peak);
    if (std::getenv("SHOW"))
      std::printf("%s rank %d: peak %zu rehearsed %zu %zu: %+.2f %+.2f %%\n", name.c_str(), rank, there.peak, early.peak,
                  notes.peak, 100.0 * (double(early.peak) / double(there.peak) - 1),
                  100.0 * (double(notes.peak) / double(there.peak) - 1));
    CHECK(notes.messages.size() == there.work.messages.size());
    for (const Rehearsal::Messages& messages : there.work.messages) {
      INFO(messages.axis << " " << std::string(messages.operation));
      const Rehearsal::Messages rehearsed = notes.of(messages.axis, messages.operation);
      CHECK(rehearsed.calls == messages.calls);
      CHECK(rehearsed.bytes == messages.bytes);
    }
  }
}

/// Compares training.
template <class Composition, class Grid = GridOf<typename Composition::model_type>, class Optimizer = optim::AdamW>
void check(const typename Composition::Config& config, const Case& c, double expert_skew = 1) {
  compare(
      int(c.world()), name_of(c), [&](World& world) { return train<Composition, Grid, Optimizer>(world, config, c); }, 2,
      expert_skew);
}

}  // namespace weft_test
