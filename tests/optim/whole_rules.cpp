// SPDX-License-Identifier: Apache-2.0
// Rules that need whole matrices (LAMB) or rows (a user's: a second moment per row, as in Adafactor), equal to one rank for every
// division among ranks.
// covers: weft/optim/rule_parts.hpp weft/optim/whole_step.hpp

#include <weft/optim/lamb.hpp>
#include <weft/optim/rule_parts.hpp>
#include <weft/optim/whole_step.hpp>

#include "support/parity.hpp"

using namespace weft_test;

namespace {

/// A second moment per row, stored with each of its elements.
struct RowRule {
  struct Options {
    double learning_rate = 1e-2, beta = 0.9, clip = 0;
  };
  static constexpr optim::Needs needs = optim::Needs::rows;
  static constexpr int buffers = 1, sent = 2, returned = 2;

  template <class P, class Exec>
  static void prepare(Device<Exec>&, optim::Slot& slot, const Options&, double gradient_scale, std::uint64_t,
                      accumulate_t<P>* arrays) {
    using A = accumulate_t<P>;
    const std::size_t n = slot.state->kept();
    for (std::size_t i = 0; i < n; ++i) {
      arrays[i] = A(gradient_scale * double(static_cast<const A*>(slot.state->gradient().get())[i]));
      arrays[n + i] = static_cast<const A*>(slot.kept[0].get())[i];
    }
  }
  template <class A, class Exec>
  static void transform(Device<Exec>&, const optim::Matrix& matrix, const Options& o, A* arrays) {
    A* moments = arrays + matrix.rows * matrix.columns;
    for (std::size_t row = 0; row < matrix.rows; ++row, arrays += matrix.columns, moments += matrix.columns) {
      double mean = 0;
      for (std::size_t i = 0; i < matrix.columns; ++i) mean += double(arrays[i]) * double(arrays[i]) / double(matrix.columns);
      const double moment = o.beta * double(moments[0]) + (1 - o.beta) * mean;
      for (std::size_t i = 0; i < matrix.columns; ++i) {
        moments[i] = A(moment);
        arrays[i] = A(double(arrays[i]) / (std::sqrt(moment) + 1e-3));
      }
    }
  }
  template <class P, class Exec>
  static void apply(Device<Exec>& device, optim::Slot& slot, const Options&, double learning_rate, std::uint64_t,
                    const accumulate_t<P>* arrays) {
    using A = accumulate_t<P>;
    const std::size_t n = slot.state->kept();
    for (std::size_t i = 0; i < n; ++i) static_cast<A*>(slot.kept[0].get())[i] = arrays[n + i];
    kernels::direction_update<P>(device, n, static_cast<P*>(slot.state->value().get()), static_cast<A*>(slot.master.get()),
                                 arrays, 1, learning_rate);
  }
};

using optim::Lamb;
using ByRows = optim::Optimizer<RowRule>;

const models::GptConfig config{
    .vocabulary = batch_vocabulary, .layers = 2, .width = 16, .heads = 4, .kv_heads = 2, .sequence = batch_length};

struct Run {
  std::map<std::string, std::vector<double>> weights;
  std::vector<double> losses;
};

template <class Optimizer, class M>
Run train(M& model, std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
  Run run;
  typename Optimizer::Options options;
  options.learning_rate = 1e-2;
  // In 16 bits Adam's direction of gradients near 0 is that of their rounding, unless epsilon is above it.
  if constexpr (std::is_same_v<Optimizer, Lamb>) options.epsilon = 1e-2;
  Optimizer optimizer(model, options);
  for (int step = 0; step < 4; ++step) {
    if (step == 1) model.freeze("*.h.1.attn.*", "*.h.0.mlp.c_proj.weight");
    if (step == 3) model.unfreeze("*.h.1.attn.*");
    run.losses.push_back(model.train_step(make_batch(0, rank, ranks, micro_batches)));
    optimizer.step();
  }
  for (const std::string& name : model.parameter_names()) run.weights[name] = model.parameter(name);
  return run;
}

template <class Model, class Optimizer>
void check_rule(double tolerance) {
  using Composition = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;
  DefaultDevice device;
  SingleDevice<Model> alone(device, config);
  const Run expected = train<Optimizer>(alone, 0, 1, 1);
  CHECK(expected.losses.back() < expected.losses.front());
  struct Layout {
    std::size_t world;
    Degrees degrees;
    std::size_t micro_batches;
    int stage;
  };
  for (const Layout& layout :
       {Layout{2, {}, 2, 0}, Layout{4, {}, 1, 1}, Layout{4, {}, 2, 3}, Layout{2, {.tp = 2}, 2, 0}, Layout{4, {.tp = 2}, 1, 2},
        Layout{4, {.tp = 4}, 1, 0}, Layout{4, {.tp = 2, .pp = 2}, 2, 0}, Layout{8, {.tp = 2, .pp = 2}, 2, 3}}) {
    INFO("world " << layout.world << ", tp " << layout.degrees.tp << ", pp " << layout.degrees.pp << ", stage " << layout.stage);
    Run seen;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(layout.world)}, [&](World& world) {
            Mesh<dp, tp, pp> mesh(world, layout.degrees);
            Composition model(mesh, config, {.shard = {.stage = layout.stage}});
            const auto data = mesh.comm(dp{});
            const Run mine = train<Optimizer>(model, std::size_t(data.rank()), std::size_t(data.size()), layout.micro_batches);
            if (world.rank() == 0) seen = mine;
          }) == 0);
    REQUIRE(seen.losses.size() == expected.losses.size());
    for (std::size_t i = 0; i < expected.losses.size(); ++i)
      CHECK(std::abs(seen.losses[i] - expected.losses[i]) <= tolerance * expected.losses[i]);
    for (const auto& entry : expected.weights) {
      const std::string& name = entry.first;
      const std::vector<double>& values = entry.second;
      double scale = 0, difference = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        scale = std::max(scale, std::abs(values[i]));
        difference = std::max(difference, std::abs(values[i] - seen.weights.at(name)[i]));
      }
      CHECK_MESSAGE(difference <= tolerance * scale, name);
    }
  }
}

}  // namespace

TEST_CASE("LAMB is given whole parameters in every layout") { check_rule<models::BasicGpt<double>, Lamb>(1e-10); }
TEST_CASE("a rule of rows is given whole rows in every layout") { check_rule<models::BasicGpt<double>, ByRows>(1e-10); }
TEST_CASE("with master copies in 16-bit models") { check_rule<models::BasicGpt<bfloat16>, Lamb>(0.1); }

TEST_CASE("a group's options reach all three parts; a decay is refused where the rule has none") {
  DefaultDevice device;
  SingleDevice<models::BasicGpt<double>> model(device, config), other(device, config);
  Lamb grouped(model, {.groups = {{.match = "*.h.0.*", .learning_rate = 0}}}), plain(other);
  for (auto* of : {&model, &other}) of->train_step(make_batch(0, 0, 1, 1));
  const auto before = model.parameter("transformer.h.0.mlp.c_fc.weight");
  grouped.step();
  plain.step();
  CHECK(model.parameter("transformer.h.0.mlp.c_fc.weight") == before);
  CHECK(model.parameter("transformer.h.1.mlp.c_fc.weight") == other.parameter("transformer.h.1.mlp.c_fc.weight"));
}
