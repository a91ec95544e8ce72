// SPDX-License-Identifier: Apache-2.0
// covers: weft/optim/exact_norm.hpp
// Frozen parameters keep their bits in every layout and stage of ZeRO, need no gradient, sum, state or decay, and do not change
// the other parameters' results; freezing and unfreezing during a run does the same everywhere.

#include <atomic>

#include "support/matrix.hpp"

#include <weft/optim/exact_norm.hpp>

using namespace weft_test;

namespace {

using Weights = std::map<std::string, std::vector<double>>;

const models::GptConfig config{.vocabulary = batch_vocabulary,
                               .layers = 4,
                               .width = 16,
                               .heads = 4,
                               .kv_heads = 2,
                               .sequence = batch_length,
                               .dropout = 0.1};

template <class M>
Weights weights_of(M& model) {
  Weights all;
  for (const std::string& name : model.parameter_names()) all[name] = model.parameter(name);
  return all;
}

struct Trained {
  Weights first, half, last;
  std::vector<double> norms;
};

// Adam would amplify the rounding of small gradients; where bits are compared, there is no rounding.
const optim::SgdOptions sgd{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1, .clip = 0.5};
const optim::AdamWOptions adamw{.learning_rate = 1e-2, .weight_decay = 0.1, .clip = 0.5};

/// Six steps; a part is frozen from the start, another part in the middle, for two steps.
template <class Optimizer, class M>
Trained train(M& model, const typename Optimizer::Options& options, std::size_t rank, std::size_t ranks,
              std::size_t micro_batches) {
  Trained seen;
  seen.first = weights_of(model);
  model.freeze("*.wte.weight", "*.h.1.*", "*.bias");  // a whole unit, one end, and parts of the others
  Optimizer optimizer(model, options);
  for (int step = 0; step < 6; ++step) {
    if (step == 2) model.freeze("*.h.2.*.weight");
    if (step == 4) {
      seen.half = weights_of(model);
      model.unfreeze("*.h.2.*.weight", "*.h.1.*.bias");
    }
    model.train_step(make_batch(step, rank, ranks, micro_batches));
    seen.norms.push_back(optimizer.step().gradient_norm);
  }
  seen.last = weights_of(model);
  return seen;
}

template <class Composition, class Optimizer, class... Axes>
Trained train_on(const typename Optimizer::Options& rule, std::size_t world, const Degrees& degrees, std::size_t micro_batches,
                 const ModelOptions& options) {
  Trained seen;
  const int code = runtime::run(runtime::RunOptions{.ranks = int(world)}, [&](World& rank) {
    Mesh<Axes...> mesh(rank, degrees);
    Composition model(mesh, config, options);
    const auto data = mesh.comm(dp{});
    const Trained mine = train<Optimizer>(model, rule, std::size_t(data.rank()), std::size_t(data.size()), micro_batches);
    if (rank.rank() == 0) seen = mine;
  });
  CHECK(code == 0);
  return seen;
}

bool frozen_at_first(const std::string& name) {
  return weft::detail::matches("*.wte.weight", name) || weft::detail::matches("*.h.1.*", name) ||
         weft::detail::matches("*.bias", name);
}

void check_frozen(const Trained& seen) {
  std::size_t frozen = 0, trained = 0, again = 0;
  for (const auto& entry : seen.first) {
    const std::string& name = entry.first;
    const std::vector<double>& first = entry.second;
    if (frozen_at_first(name)) {
      ++frozen;
      CHECK_MESSAGE(seen.half.at(name) == first, name);
      if (weft::detail::matches("*.h.1.*.bias", name)) CHECK_MESSAGE((++again, seen.last.at(name) != first), name);
      else CHECK_MESSAGE(seen.last.at(name) == first, name);
    } else {
      ++trained;
      CHECK_MESSAGE(seen.half.at(name) != first, name);
      CHECK_MESSAGE(seen.last.at(name) != seen.half.at(name), name);
    }
  }
  CHECK(frozen > 10);
  CHECK(trained > 10);
  CHECK(again > 2);
}

void check_equal(const Trained& seen, const Trained& expected, double tolerance) {
  CHECK(seen.last.size() == expected.last.size());
  for (const auto& entry : expected.last) {
    const std::string& name = entry.first;
    const std::vector<double>& values = entry.second;
    double scale = 0, difference = 0;
    const auto& mine = seen.last.at(name);
    REQUIRE(mine.size() == values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      scale = std::max(scale, std::abs(values[i]));
      difference = std::max(difference, std::abs(values[i] - mine[i]));
    }
    CHECK_MESSAGE(difference <= tolerance * scale, name);
  }
}

using Gpt = models::BasicGpt<double>;
using Sharded = FullyShardedDataParallel<TensorParallel<PipelineParallel<Gpt>>>;

template <class Optimizer>
Trained reference(const typename Optimizer::Options& rule, const ModelOptions& options = {}, std::size_t micro_batches = 1) {
  DefaultDevice device;
  SingleDevice<Gpt> model(device, config, options);
  return train<Optimizer>(model, rule, 0, 1, micro_batches);
}

}  // namespace

TEST_CASE("frozen parameters keep their bits, and the others equal one rank, in every stage, with tp and pp") {
  const Trained expected = reference<optim::Sgd>(sgd);
  check_frozen(expected);
  struct Case {
    std::size_t world;
    Degrees degrees;
    std::size_t micro_batches;
  };
  for (const int stage : {0, 1, 2, 3})
    for (const Case& layout : {Case{1, {}, 2}, Case{2, {}, 2}, Case{4, {}, 1}, Case{4, {.tp = 2}, 2}, Case{4, {.pp = 2}, 2}})
      for (const std::size_t replicate : {1, 2}) {
        if (replicate == 2 && (stage == 0 || layout.world < 4)) continue;
        INFO("stage " << stage << ", world " << layout.world << ", tp " << layout.degrees.tp << ", pp " << layout.degrees.pp
                      << ", replicate " << replicate);
        const Trained seen = train_on<Sharded, optim::Sgd, dp, tp, pp>(sgd, layout.world, layout.degrees, layout.micro_batches,
                                                                       {.shard = {.stage = stage, .replicate = replicate}});
        check_frozen(seen);
        check_equal(seen, expected, 1e-12);
      }
}

TEST_CASE("with context and sequence parallelism, and state in a store") {
  const Trained expected = reference<optim::Sgd>(sgd);
  using Composition = FullyShardedDataParallel<ContextParallel<SequenceParallel<PipelineParallel<Gpt>>>>;
  for (const int stage : {0, 3}) {
    const Trained seen =
        train_on<Composition, optim::Sgd, dp, cp, tp, pp>(sgd, 4, {.tp = 2, .cp = 2}, 2, {.shard = {.stage = stage}});
    check_frozen(seen);
    check_equal(seen, expected, 1e-12);
  }
  for (const int stage : {1, 3}) {
    const Trained seen =
        train_on<Sharded, optim::Sgd, dp, tp, pp>(sgd, 2, {}, 2, {.shard = {.stage = stage, .offload = Offload::host()}});
    check_frozen(seen);
    check_equal(seen, expected, 1e-12);
  }
}

TEST_CASE("reproducible runs with frozen parameters have the bits of one rank") {
  ModelOptions options{.numerics = {.reproducible = true}};
  const Trained expected = reference<optim::AdamW>(adamw, options, 8);
  check_frozen(expected);
  for (const int stage : {0, 1, 2, 3})
    for (const std::size_t pipeline : {1, 2}) {
      INFO("stage " << stage << ", pp " << pipeline);
      options.shard.stage = stage;
      const std::size_t world = 2 * pipeline, ranks = 2;
      const Degrees degrees{.pp = pipeline};
      const Trained seen = train_on<Sharded, optim::AdamW, dp, tp, pp>(adamw, std::size_t(world), degrees, 8 / ranks, options);
      CHECK(seen.last == expected.last);
      CHECK(seen.norms == expected.norms);
    }
}

TEST_CASE("16-bit models: frozen masters keep their bits in every stage") {
  using Half = FullyShardedDataParallel<models::BasicGpt<bfloat16>>;
  for (const int stage : {0, 1, 2, 3})
    for (const bool narrow : {false, true}) {
      INFO("stage " << stage << ", narrow sums " << narrow);
      ModelOptions options{.shard = {.stage = stage}};
      if (narrow) options.numerics.reduce = DataType::bfloat16;
      check_frozen(train_on<Half, optim::AdamW, dp>(adamw, 2, {}, 2, options));
    }
}

namespace {
std::atomic<std::size_t> summed{0};
/// Counts the elements that are summed on rank 0.
struct Counted {
  Request start(hook::Bucket& bucket, const Communicator& ranks) {
    if (ranks.rank() == 0)
      for (const auto& member : bucket.members) summed += member.state->size();
    return ranks.all_reduce_async(bucket.all());
  }
};
}  // namespace

TEST_CASE("a frozen parameter has no gradient, no place in a sum, no optimizer state and no memory for them") {
  for (const int stage : {0, 1, 2, 3}) {
    INFO("stage " << stage);
    CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
            Mesh<dp> mesh(world);
            ModelOptions options{.shard = {.stage = stage}};
            if (stage == 0) options.data.hook = hook::make<Counted>();
            FullyShardedDataParallel<models::BasicGpt<float>> model(mesh, config, options);
            std::size_t all = 0, trained = 0, kept = 0;
            model.for_each_state([&](ParameterState& state) {
              const bool stays = state.name().find("transformer.h.3.") == 0 && state.global().rank() > 1;
              all += state.size();
              trained += stays ? state.size() : 0;
              kept += stays ? 0 : state.kept();
            });
            const auto& arena = model.device().arena();
            const Batch batch = make_batch(0, std::size_t(world.rank()), 2, 1);
            model.train_step(batch);
            optim::AdamW optimizer(model);
            model.train_step(batch);
            optimizer.step();
            const std::size_t before = arena.use().current;
            model.freeze("*");
            model.unfreeze("*.h.3.*.weight");
            model.freeze("*.h.3.ln*");
            if (world.rank() == 0) summed = 0;
            world.communicator().barrier();
            model.train_step(batch);
            const double norm = optimizer.step().gradient_norm;
            double sum = 0;
            for (const std::string& name : model.parameter_names()) {
              const auto gradient = model.gradient(name);
              for (const double g : gradient) sum += g * g;
            }
            if (std::abs(norm - std::sqrt(sum)) > 1e-5 * norm) throw Error("a frozen parameter is in the norm");
            for (const optim::Slot& slot : optimizer.slots()) {
              const bool stays = slot.state->name().find("transformer.h.3.") == 0 && slot.state->global().rank() > 1;
              if (slot.state->trainable() != stays) throw Error(slot.state->name() + ": not as the patterns say");
              if (!stays && (slot.state->gradient() || slot.state->gradients().layer_buffer() || !slot.kept.empty()))
                throw Error(slot.state->name() + ": memory for a frozen parameter");
            }
            // At least the moments of this rank's frozen elements are freed.
            if (before - arena.use().current < 2 * 4 * kept) throw Error("the memory is not given back");
            if (stage == 0 && world.rank() == 0 && summed != trained)
              throw Error("other sums than those of the trained parameters");
          }) == 0);
  }
}

TEST_CASE("a parameter beside frozen ones gets the bits of a run in which all are trained") {
  for (const int stage : {0, 1, 2, 3}) {
    Weights both[2];
    for (const bool frozen : {false, true})
      CHECK(runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
              Mesh<dp> mesh(world);
              FullyShardedDataParallel<models::BasicGpt<float>> model(mesh, config, {.shard = {.stage = stage}});
              if (frozen) model.freeze("*.bias", "*.h.?.mlp.*");
              optim::AdamW optimizer(model);
              model.train_step(make_batch(0, std::size_t(world.rank()), 4, 1));
              optimizer.step();
              const Weights mine = weights_of(model);
              if (world.rank() == 0) both[frozen] = mine;
            }) == 0);
    for (const auto& entry : both[0]) {
      const std::string& name = entry.first;
      const std::vector<double>& values = entry.second;
      if (!weft::detail::matches("*.bias", name) && !weft::detail::matches("*.h.?.mlp.*", name))
        CHECK_MESSAGE(both[1].at(name) == values, name);
    }
  }
}

TEST_CASE("refused patterns") {
  DefaultDevice device;
  SingleDevice<models::BasicGpt<float>> model(device, config);
  const auto text_of = [](auto&& f) {
    try {
      f();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  CHECK(text_of([&] {
          model.freeze("transformer.h.0.ln1.bias");
        }).find("weft: freeze: \"transformer.h.0.ln1.bias\" names none of the ") == 0);
  optim::AdamW optimizer(model);
  model.train_step(make_batch(0, 0, 1, 1));
  CHECK(text_of([&] { model.freeze("*"); }) ==
        "weft: freeze between train_step and the optimizer's step: the gradients would be lost. Call it after the step, or call "
        "model.discard_gradients() first");
  model.discard_gradients();
  model.freeze("*");
  model.train_step(make_batch(0, 0, 1, 1));  // computes a loss and nothing else
  CHECK(optimizer.step().gradient_norm == 0);
}
