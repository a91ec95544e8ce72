// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/tied_parameters.hpp weft/parallel/whole_parameter.hpp
// covers: weft/engine/registry.hpp weft/autograd/shared_layer.hpp
// Parameters that a user's model shares: twice in a block, between some of the blocks, between front and back, by handle and by
// shared_layer. Equal to one rank in every layout, and bitwise in reproducible runs; repeated names are refused.

#include "support/matrix.hpp"
#include "support/reproducible.hpp"

#include <weft/autograd/shared_layer.hpp>
#include <weft/engine/registry.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/parallel/whole_parameter.hpp>
#include <weft/pipeline/tied_parameters.hpp>

using namespace weft_test;

namespace {

struct Scale {
  Parameter<> gain;
  Scale(const auto& context, std::size_t width) : gain(context, "gain", {width}, ones) {}
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

struct SharingConfig {
  std::size_t layers = 8, width = 16, vocabulary = batch_vocabulary;
  bool ignore_front = false, forget_index = false, two_gains = false, two_dropouts = false, by_pointer = false;
  double dropout = 0;
};

template <class S>
struct Sharing {
  using Config = SharingConfig;
  using scalar = S;
  using Front = Embedding;
  // One gain outside of the parallel region and on its Partial output; an adapter twice in every block: blocks 1, 2, 4, 5 and 7
  // share one, block 0 does not have it, and the others have separate ones.
  struct Adapter {
    std::vector<Linear<>> linear;       // one: handles are found wherever a unit keeps them
    std::shared_ptr<Linear<>> pointer;  // replaces the handles if blocks should have none
    auto forward(const auto& context, const auto& x) const { return (pointer ? *pointer : linear[0]).forward(context, x); }
    auto backward_input(const auto& context, auto saved, const auto& g) {
      return (pointer ? *pointer : linear[0]).backward_input(context, std::move(saved), g);
    }
    void backward_weight(const auto& context, auto deferred) {
      (pointer ? *pointer : linear[0]).backward_weight(context, std::move(deferred));
    }
  };
  static bool shares(std::size_t index) { return index % 3 != 0; }
  using Block = Sequential<Residual<Sequential<Scale, LayerNorm, Linear<Column>, Gelu, Linear<Row>, Scale, Dropout>>,
                           Residual<Sequential<Adapter, Gelu, Adapter, Dropout>>>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width, 0.3);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    const auto here = config.forget_index ? context / "block" : context / "block" / std::to_string(index);
    const std::size_t width = config.width;
    const Scale scale(here / "scale", width);
    const Scale other = config.two_gains ? Scale(here / "scale", width) : scale;
    const auto make_adapter = [&](const auto& place) {
      const Linear<> linear(place, width, width, {.standard_deviation = 0.2});
      return config.by_pointer ? Adapter{{}, std::make_shared<Linear<>>(linear)} : Adapter{{linear}, nullptr};
    };
    const Adapter adapter = shares(index) ? shared_layer(context / "adapter", make_adapter) : make_adapter(here / "adapter");
    return Block(Residual(Sequential(scale, LayerNorm(here / "norm", width),
                                     Linear<Column>(here / "up", width, 2 * width, {.standard_deviation = 0.3}), Gelu{},
                                     Linear<Row>(here / "down", 2 * width, width, {.standard_deviation = 0.3}), other,
                                     Dropout(here / "dropout", config.dropout))),
                 Residual(Sequential(adapter, Gelu{}, adapter,
                                     Dropout(here / (config.two_dropouts ? "dropout" : "after"), config.dropout))));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width),
                config.ignore_front ? make_front(context, config).table : front->table);
  }
};

template <class M>
using Ring4 = FullyShardedDataParallel<ContextParallel<TensorParallel<Staged<M>>, Ring>>;
template <class M>
using Sequence4 = FullyShardedDataParallel<ContextParallel<SequenceParallel<Staged<M>>, Ring>>;

const std::vector<MatrixEntry> layouts = {
    {2, {}, 2, "1f1b", 0},
    {2, {}, 2, "1f1b", 1},
    {4, {}, 2, "1f1b", 2},
    {8, {}, 1, "1f1b", 3},
    {2, {.tp = 2}, 2},
    {4, {.tp = 4}, 1, "1f1b", 3},
    {2, {.cp = 2}, 2},
    {2, {.pp = 2}, 4, "1f1b"},
    {4, {.pp = 4}, 4, "1f1b"},
    {2, {.pp = 2}, 4, "interleaved"},
    {4, {.pp = 4}, 8, "zb-h1"},
    {4, {.pp = 4}, 8, "zbv"},
    {8, {.pp = 4}, 4, "1f1b", 2},
    {8, {.pp = 4}, 4, "interleaved", 3},
    {4, {.tp = 2, .pp = 2}, 4, "interleaved-zb"},
    {8, {.tp = 2, .pp = 4}, 4, "1f1b"},
    {8, {.tp = 2, .pp = 2}, 4, "zb-h1", 3},
    {8, {.tp = 2, .cp = 2}, 2, "1f1b", 1},
    {8, {.cp = 2, .pp = 2}, 4, "dualpipev", 2},
};
const auto all = [](const MatrixEntry&) { return true; };

using Reproducing = FullyShardedDataParallel<PipelineParallel<Sharing<float>>, Reproducible>;
const SharingConfig small{.layers = 4, .width = 8, .vocabulary = reproducible_vocabulary, .dropout = 0.1};

Run20 reproducible_run(std::size_t data, std::size_t pipeline, int stage, const std::string& schedule,
                       std::size_t micro_batches) {
  Run20 run;
  std::mutex mutex;
  CHECK(runtime::run(runtime::RunOptions{.ranks = int(data * pipeline), .threads_per_rank = 1}, [&](World& world) {
          Mesh<dp, pp> mesh(world, Degrees{.pp = pipeline});
          ModelOptions options;
          options.shard.stage = stage;
          options.pipeline.schedule = schedule::choose(schedule);
          Reproducing model(mesh, small, options);
          train_20(model, std::size_t(mesh.rank(dp{})), data, micro_batches, run, mutex, world.rank() == 0);
        }) == 0);
  return run;
}

// The error on every rank when the model is made; "different" if ranks disagree.
std::string refusal(int ranks, const Degrees& degrees, const SharingConfig& config) {
  std::vector<std::string> texts(std::size_t(ranks), "nothing");
  CHECK(runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
          DenseMesh mesh(world, degrees);
          ModelOptions options;
          options.shard.stage = 0;
          options.pipeline.schedule = schedule::choose("1f1b");
          try {
            Ring4<Sharing<double>> model(mesh, config, options);
          } catch (const UsageError& error) {
            texts[std::size_t(world.rank())] = error.what();
          }
        }) == 0);
  for (const std::string& text : texts)
    if (text != texts[0]) return "different: " + text + " / " + texts[0];
  return texts[0];
}

}  // namespace

TEST_CASE("shared twice in a block, by all blocks, by both ends: every layout equals one rank") {
  CHECK(check_matrix<Ring4<Sharing<double>>, DenseMesh>(layouts, {.dropout = 0.1}, all) == layouts.size());
}

TEST_CASE("the same under sequence parallelism") {
  CHECK(check_matrix<Sequence4<Sharing<double>>, DenseMesh>(layouts, {.dropout = 0.1},
                                                            [](const MatrixEntry& entry) { return entry.degrees.tp > 1; }) >= 5);
}

TEST_CASE("bitwise, where a run is reproducible") {
  for (const std::size_t micro_batches : {std::size_t(8), std::size_t(6)}) {
    Run20 expected, plain;
    std::mutex mutex;
    DefaultDevice device;
    SingleDevice<Sharing<float>> one(device, small, {.numerics = {.reproducible = true}});
    train_20(one, 0, 1, micro_batches, expected, mutex, true);
    SingleDevice<Sharing<float>> without(device, small);
    train_20(without, 0, 1, micro_batches, plain, mutex, true);
    for (std::size_t i = 0; i < plain.losses.size(); ++i)
      CHECK(plain.losses[i] == doctest::Approx(expected.losses[i]).epsilon(1e-3));
    const auto check = [&](std::size_t data, std::size_t pipeline, int stage, const char* schedule) {
      INFO("dp " << data << ", pp " << pipeline << ", stage " << stage << ", " << schedule << ", micro-batches "
                 << micro_batches);
      CHECK(reproducible_run(data, pipeline, stage, schedule, micro_batches) == expected);
    };
    for (int stage = 0; stage < 4; ++stage) check(2, 1, stage, "1f1b");
    check(2, 2, 1, "1f1b");
    check(1, 2, 3, "zbv");
    check(1, 4, 0, "1f1b");
    check(1, 4, 0, "zb-h1");
    check(2, 2, 2, "interleaved");
    if (micro_batches == 8) {
      check(4, 1, 1, "1f1b");
      check(8, 1, 2, "1f1b");
      check(2, 4, 3, "zb-h1");
    }
  }
}

TEST_CASE("a parameter and its gradient by name, whole in every layout") {
  std::map<std::string, std::vector<double>> values, gradients;
  std::vector<std::string> names;
  {
    DefaultDevice device;
    SingleDevice<Sharing<double>> one(device, {.dropout = 0.1});
    names = one.parameter_names();
    CHECK(names.size() == 2 + 8 * 7 + 3 * 2 + 2 + 1);
    CHECK(std::count(names.begin(), names.end(), "adapter.weight") == 1);
    CHECK(std::count_if(names.begin(), names.end(), [](const auto& name) { return name.ends_with(".adapter.weight"); }) == 3);
    CHECK_THROWS_WITH_AS(one.gradient("tokens.weight"), "weft: the gradient of tokens.weight before any train_step", UsageError);
    CHECK_THROWS_WITH_AS(one.parameter("token.weight"),
                         doctest::Contains("weft: the model has no parameter token.weight; near it are tokens.weight, "),
                         UsageError);
    one.train_step(make_batch(0, 0, 1, 1));
    for (const auto& name : names) values[name] = one.parameter(name), gradients[name] = one.gradient(name);
  }
  for (const MatrixEntry& entry : {MatrixEntry{2, {}, 4},
                                   {4, {}, 2, "1f1b", 1},
                                   {4, {.tp = 2}, 2, "1f1b", 3},
                                   {8, {.tp = 2, .pp = 2}, 4, "zbv", 2},
                                   {4, {.cp = 2, .pp = 2}, 8, "interleaved"},
                                   {8, {.pp = 4}, 4}}) {
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
            DenseMesh mesh(world, entry.degrees);
            ModelOptions options;
            options.shard.stage = entry.zero;
            options.pipeline.schedule = schedule::choose(entry.schedule);
            Ring4<Sharing<double>> model(mesh, {.dropout = 0.1}, options);
            model.train_step(make_batch(0, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), entry.micro_batches));
            bool same = model.parameter_names() == names, close = true;
            for (const auto& name : names) {
              same = same && model.parameter(name) == values[name];
              const auto mine = model.gradient(name);
              double largest = 0;
              for (const double value : gradients[name]) largest = std::max(largest, std::abs(value));
              for (std::size_t i = 0; i < mine.size(); ++i)
                close = close && std::abs(mine[i] - gradients[name][i]) <= 1e-12 * largest;
            }
            if (!same || !close) throw Error("another value in world " + std::to_string(entry.world));
          }) == 0);
  }
}

TEST_CASE("a stage holds the shared parameters that its own units use, and no others") {
  // One block in each of 8 stages; the front is in the first and the back in the last.
  std::vector<std::vector<std::string>> held(8);
  CHECK(runtime::run(runtime::RunOptions{.ranks = 8}, [&](World& world) {
          DenseMesh mesh(world, {.pp = 8});
          ModelOptions options;
          options.pipeline.schedule = schedule::choose("1f1b");
          Ring4<Sharing<double>> model(mesh, {}, options);
          model.for_each_state([&](ParameterState& state) {
            if (state.name().starts_with("adapter.") || state.name() == "tokens.weight")
              held[std::size_t(mesh.rank(pp{}))].push_back(state.name());
          });
        }) == 0);
  for (std::size_t stage = 0; stage < 8; ++stage) {
    INFO("stage " << stage);
    std::vector<std::string> expected;
    if (Sharing<double>::shares(stage)) expected = {"adapter.bias", "adapter.weight"};
    if (stage == 0 || stage == 7) expected.push_back("tokens.weight");
    std::sort(held[stage].begin(), held[stage].end());
    CHECK(held[stage] == expected);
  }
}

TEST_CASE(
    "a layer that blocks reach through one pointer: the same on one device, and refused where a block needs its own handle") {
  DefaultDevice device;
  SingleDevice<Sharing<double>> copied(device, {}), pointed(device, {.by_pointer = true});
  const Batch batch = make_batch(0, 0, 1, 2);
  CHECK(copied.train_step(batch) == pointed.train_step(batch));
  CHECK(copied.gradient("adapter.weight") == pointed.gradient("adapter.weight"));
  for (const MatrixEntry& entry : {MatrixEntry{2, {.pp = 2}, 2, "1f1b", 0}, {2, {}, 2, "1f1b", 3}}) {
    std::mutex mutex;
    std::string said;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
            DenseMesh mesh(world, entry.degrees);
            ModelOptions options;
            options.shard.stage = entry.zero;
            options.pipeline.schedule = schedule::choose(entry.schedule);
            Ring4<Sharing<double>> model(mesh, {.by_pointer = true}, options);
            try {
              model.train_step(make_batch(0, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), entry.micro_batches));
            } catch (const AbortedError&) {
              throw;
            } catch (const Error& error) {
              std::lock_guard lock(mutex);
              said = error.what();
              throw;
            }
          }) != 0);
    CHECK(said.starts_with("weft: block."));  // the first that this rank has and that has no copy
    CHECK(said.substr(said.find(": parameter")) ==
          ": parameter adapter.weight is used while it is released, or by a unit that has no copy of it: copy a layer "
          "that units share into each of them, not a pointer to it");
  }
}

TEST_CASE("names made twice: refused alike on every rank and in every layout") {
  for (const auto& [ranks, degrees] : {std::pair<int, Degrees>{1, {}}, {2, {.pp = 2}}, {4, {.pp = 4}}, {2, {.tp = 2}}}) {
    CHECK(refusal(ranks, degrees, {}) == "nothing");
    CHECK(refusal(ranks, degrees, {.ignore_front = true})
              .starts_with("weft: two parameters named tokens.weight, made by front and back: a name is one parameter."));
    CHECK(refusal(ranks, degrees, {.forget_index = true})
              .starts_with("weft: two parameters named block.down.bias, made by block 0 and block 1:"));
    CHECK(refusal(ranks, degrees, {.two_gains = true})
              .starts_with("weft: two parameters named block.0.scale.gain, made by block 0, twice:"));
    CHECK(refusal(ranks, degrees, {.two_dropouts = true, .dropout = 0.1}) ==
          "weft: two Dropouts under one path, block.0.dropout (block 0, twice): they would draw the same numbers; give each its "
          "own "
          "path, context / \"name\"");
    CHECK(refusal(ranks, degrees, {.two_dropouts = true}) == "nothing");  // without a mask nothing is drawn
  }
}
