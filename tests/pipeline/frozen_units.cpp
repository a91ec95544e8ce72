// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/trainable_parameters.hpp
// Units in front of the first one that is trained have no backward, and no stage of a pipeline is sent gradients for them: a
// layer counts its calls. The others get the bits that they get if everything is trained, in every layout, also when a run
// unfreezes them; parameters that are frozen from the start never have memory for gradients.

#include <weft/pipeline/trainable_parameters.hpp>

#include "support/field_models.hpp"
#include "support/field_parity.hpp"

#include <array>
#include <atomic>

using namespace weft_test;

namespace {

constexpr std::size_t layers = 6;
struct Calls {
  std::atomic<std::size_t> forward{0}, backward{0}, weight{0};
};
std::array<Calls, layers> calls;

/// A layer that counts its calls.
struct Counted {
  Linear<> inner;
  std::size_t index;
  Counted(const auto& context, std::size_t width, std::size_t at)
      : inner(context, width, width, {.standard_deviation = 0.5}), index(at) {}
  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    ++calls[index].forward;
    return inner.forward(context, x);
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context& context, Saved saved, const G& g) {
    ++calls[index].backward;
    return inner.backward_input(context, std::move(saved), g);
  }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, Deferred deferred) {
    ++calls[index].weight;
    inner.backward_weight(context, std::move(deferred));
  }
};

struct Net {
  using scalar = double;
  using Config = MlpConfig;
  using Batch = Mlp::Batch;
  static auto stack(const auto& context, const Config& config) {
    const auto layers_at = [=](const char* name, std::size_t in, std::size_t out) {
      return TwoLayers(context / name, in, config.width, out);
    };
    return Stack(
        [=] { return Mlp::First(layers_at("first", config.in, config.width)); },
        repeated(layers, [=](std::size_t i) { return Counted(context / "counted" / std::to_string(i), config.width, i); }),
        [=] { return Mlp::Last(layers_at("last", config.width, config.out)); });
  }
};

struct Seen {
  std::vector<double> losses;
  std::vector<std::map<std::string, std::vector<double>>> gradients;
  std::map<std::string, std::vector<double>> first, last;
};

constexpr int steps = 4;

/// Steps in which the first half is frozen, and then some in which it is trained.
template <class M>
Seen train(M& model, bool frozen_from_the_start, std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
  Seen seen;
  if (!frozen_from_the_start) model.freeze("first.*", "counted.0.*", "counted.1.*", "counted.2.*");
  optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
  for (const std::string& name : model.parameter_names()) seen.first[name] = model.parameter(name);
  for (int step = 0; step < steps; ++step) {
    if (step == 2) {
      for (const std::string& name : model.parameter_names()) seen.last[name] = model.parameter(name);
      model.unfreeze("first.*", "counted.*");
    }
    seen.losses.push_back(model.train_step(Mlp::make_batch({}, std::uint64_t(step), rank, ranks, micro_batches)));
    auto& gradients = seen.gradients.emplace_back();
    for (const std::string& name : model.parameter_names()) gradients[name] = model.gradient(name);
    optimizer.step();
  }
  return seen;
}

bool in_front(const std::string& name) { return name.find("first.") == 0 || name < "counted.3"; }

void reset() {
  for (Calls& call : calls) call.forward = call.backward = call.weight = 0;
}

Seen reference() {
  DefaultDevice device;
  SingleDevice<Net> model(device, {});
  return train(model, false, 0, 1, 1);
}

/// Backwards of two steps without and two with the frozen half.
void check_calls(std::size_t forwards_of_a_step) {
  for (std::size_t i = 0; i < layers; ++i) {
    CHECK(calls[i].forward == steps * forwards_of_a_step);
    CHECK(calls[i].backward == (i < 3 ? 2 : 4) * forwards_of_a_step);
    CHECK(calls[i].weight == (i < 3 ? 2 : 4) * forwards_of_a_step);
  }
}

}  // namespace

TEST_CASE("units in front of the first trained one have no backward, in any layout") {
  reset();
  const Seen expected = reference();
  check_calls(1);
  for (const auto& entry : expected.first) {
    const std::string& name = entry.first;
    CHECK_MESSAGE((expected.last.at(name) == entry.second) == in_front(name), name);
  }
  struct Layout {
    MatrixEntry entry;
    bool from_the_start = false;
  };
  const std::vector<Layout> layouts = {{{2, {}, 2, "1f1b", 0}},
                                       {{2, {}, 2, "1f1b", 1}, true},
                                       {{2, {}, 1, "1f1b", 2}},
                                       {{4, {}, 2, "1f1b", 3}, true},
                                       {{2, {.tp = 2}, 1}},
                                       {{2, {.pp = 2}, 4, "gpipe"}},
                                       {{2, {.pp = 2}, 4, "1f1b"}},
                                       {{2, {.pp = 2}, 4, "interleaved"}},
                                       {{2, {.pp = 2}, 4, "zb-h1"}, true},
                                       {{2, {.pp = 2}, 4, "zbv"}},
                                       {{2, {.pp = 2}, 4, "dualpipev"}},
                                       {{4, {.pp = 4}, 4, "1f1b"}, true},
                                       {{4, {.pp = 4}, 4, "zbv"}},
                                       {{4, {.pp = 2}, 2, "zb-h1", 3}},
                                       {{8, {.tp = 2, .pp = 2}, 2, "1f1b", 2}, true},
                                       {{8, {.pp = 4}, 4, "zb-h1", 3}}};
  for (const Layout& layout : layouts) {
    const MatrixEntry& entry = layout.entry;
    const bool from_the_start = layout.from_the_start;
    INFO("world " << entry.world << ", tp(" << entry.degrees.tp << "), pp(" << entry.degrees.pp << "), " << entry.schedule
                  << ", ZeRO " << entry.zero << ", from the start " << from_the_start);
    reset();
    std::mutex mutex;
    double largest = 0;
    bool unchanged = true;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
            Mesh<dp, tp, pp> mesh(world, entry.degrees);
            ModelOptions options;
            options.shard.stage = entry.zero;
            options.pipeline.schedule = schedule::choose(entry.schedule);
            if (from_the_start) options.freeze = {"first.*", "counted.0.*", "counted.1.*", "counted.2.*"};
            FullyShardedDataParallel<TensorParallel<PipelineParallel<Net>>> model(mesh, {}, options);
            const Seen seen =
                train(model, from_the_start, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), entry.micro_batches);
            std::lock_guard lock(mutex);
            for (int step = 0; step < steps; ++step) {
              largest = std::max(largest, std::abs(seen.losses[std::size_t(step)] / expected.losses[std::size_t(step)] - 1));
              for (const auto& [name, values] : expected.gradients[std::size_t(step)]) {
                const auto& mine = seen.gradients[std::size_t(step)].at(name);
                double scale = 0;
                for (const double value : values) scale = std::max(scale, std::abs(value));
                if (in_front(name) && step < 2) unchanged = unchanged && scale == 0;
                else if (scale == 0) unchanged = false;
                for (std::size_t i = 0; i < values.size(); ++i)
                  if (mine[i] != values[i]) largest = std::max(largest, std::abs(mine[i] - values[i]) / scale);
              }
            }
            for (const auto& [name, values] : seen.first)
              if (in_front(name)) unchanged = unchanged && seen.last.at(name) == values;
          }) == 0);
    CHECK(largest <= 1e-12);
    CHECK(unchanged);
    check_calls(entry.world / entry.degrees.pp * entry.micro_batches);
  }
}

TEST_CASE("trained parameters have the bits of a run in which all are trained") {
  const auto gradients = [](std::vector<std::string> freeze) {
    DefaultDevice device;
    SingleDevice<Net> model(device, {}, ModelOptions{.freeze = std::move(freeze)});
    model.train_step(Mlp::make_batch({}, 0, 0, 1, 2));
    std::map<std::string, std::vector<double>> all;
    for (const std::string& name : model.parameter_names()) all[name] = model.gradient(name);
    return all;
  };
  const auto all = gradients({}), some = gradients({"first.*", "counted.0.*", "counted.1.*", "counted.2.*"});
  for (const auto& entry : all) {
    const std::string& name = entry.first;
    const std::vector<double> zeros(entry.second.size());
    CHECK_MESSAGE(some.at(name) == (in_front(name) ? zeros : entry.second), name);
  }
}

TEST_CASE("parameters frozen from the start have no gradient and no optimizer state, not even at first") {
  for (const int stage : {0, 1, 2, 3}) {
    CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
            Mesh<dp> mesh(world);
            std::size_t made[2], stepped[2];
            for (const bool frozen : {false, true}) {
              ModelOptions options{.shard = {.stage = stage}};
              if (frozen) options.freeze = {"first.*", "counted.*"};
              const auto& use = world.device().arena().use();
              const std::size_t before = use.current;
              FullyShardedDataParallel<Net> model(mesh, MlpConfig{.width = 64}, options);
              made[frozen] = use.current - before;
              optim::AdamW optimizer(model);
              model.train_step(Mlp::make_batch({}, 0, std::size_t(world.rank()), 2, 1));
              optimizer.step();
              stepped[frozen] = use.current - before;
              for (const optim::Slot& slot : optimizer.slots()) {
                const ParameterState& state = *slot.state;
                const bool trained = !frozen || state.name().find("last") == 0;
                if (state.trainable() != trained || (!trained && (state.gradient() || !slot.kept.empty())))
                  throw Error(state.name() + ": memory for a frozen parameter");
              }
            }
            const std::size_t elements = layers * 64 * 64 / (stage == 0 ? 1 : 2);
            if (made[0] < made[1] + elements * 8 || stepped[0] < stepped[1] + 3 * elements * 8)
              throw Error("frozen parameters have memory for gradients or moments");
          }) == 0);
  }
}

TEST_CASE("patterns of ModelOptions::freeze are checked") {
  DefaultDevice device;
  CHECK_THROWS_WITH_AS(SingleDevice<Net>(device, {}, ModelOptions{.freeze = {"counted.7.*"}}),
                       doctest::Contains("weft: ModelOptions::freeze: \"counted.7.*\" names none of the "), UsageError);
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [](World& world) {
          Mesh<dp> mesh(world);
          try {
            DataParallel<Net> model(mesh, {}, ModelOptions{.freeze = {world.rank() == 0 ? "first.*" : "last.*"}});
          } catch (const UsageError& error) {
            if (std::string(error.what()).find("ModelOptions::freeze") != std::string::npos) return;
          }
          throw Error("ranks with other patterns were not refused");
        }) == 0);
}
