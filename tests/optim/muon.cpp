// SPDX-License-Identifier: Apache-2.0
// Muon against its formulas in double, and equal to one rank in every layout: wherever matrices are cut, wherever their home is.

#include <weft/optim/muon.hpp>

#include "support/matrix.hpp"

#include <weft/engine/parameter_values.hpp>

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
const models::LlamaConfig llama{.vocabulary = batch_vocabulary,
                                .layers = 4,
                                .width = 16,
                                .heads = 4,
                                .kv_heads = 2,
                                .intermediate = 24,
                                .sequence = batch_length};

template <class M>
Weights weights_of(M& model) {
  Weights all;
  for (const std::string& name : model.parameter_names()) all[name] = model.parameter(name);
  return all;
}

// Matrices first: AdamW, which the rest has, would blow up the rounding of small gradients unless epsilon is large.
using Groups = std::vector<optim::ParameterGroup>;
optim::MuonOptions options_of(optim::Work work, const Groups& groups = {}) {
  return {.learning_rate = 0.02, .weight_decay = 0.1, .epsilon = 1e-2, .clip = 1.0, .work = work, .groups = groups};
}

struct Run {
  Weights weights;
  std::vector<double> losses;
};

template <class M>
Run train(M& model, std::size_t rank, std::size_t ranks, std::size_t micro_batches, optim::Work work, const Groups& groups) {
  Run run;
  optim::Muon optimizer(model, options_of(work, groups));
  for (int step = 0; step < 3; ++step) {
    run.losses.push_back(model.train_step(make_batch(step, rank, ranks, micro_batches)));
    optimizer.step();
  }
  run.weights = weights_of(model);
  return run;
}

void check_equal(const Run& seen, const Run& expected, double tolerance) {
  CHECK(seen.losses.size() == expected.losses.size());
  for (std::size_t i = 0; i < seen.losses.size(); ++i)
    CHECK(std::abs(seen.losses[i] - expected.losses[i]) <= tolerance * expected.losses[i]);
  REQUIRE(seen.weights.size() == expected.weights.size());
  for (const auto& entry : expected.weights) {
    const std::string& name = entry.first;
    const std::vector<double>& values = entry.second;
    double scale = 0, difference = 0;
    const auto& mine = seen.weights.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      scale = std::max(scale, std::abs(values[i]));
      difference = std::max(difference, std::abs(values[i] - mine[i]));
    }
    CHECK_MESSAGE(difference <= tolerance * scale, name);
  }
}

template <class Composition, class... Axes>
Run train_on(const typename Composition::Config& of, std::size_t world, const Degrees& degrees, std::size_t micro_batches,
             optim::Work work, const ModelOptions& options = {}, const Groups& groups = {}) {
  Run seen;
  const int code = runtime::run(runtime::RunOptions{.ranks = int(world)}, [&](World& rank) {
    Mesh<Axes...> mesh(rank, degrees);
    Composition model(mesh, of, options);
    const auto data = mesh.comm(dp{});
    const Run mine = train(model, std::size_t(data.rank()), std::size_t(data.size()), micro_batches, work, groups);
    if (rank.rank() == 0) seen = mine;
  });
  CHECK(code == 0);
  return seen;
}

template <class Model>
Run reference(const typename Model::Config& of, const ModelOptions& options = {}, std::size_t micro_batches = 1,
              const Groups& groups = {}) {
  DefaultDevice device;
  SingleDevice<Model> model(device, of, options);
  return train(model, 0, 1, micro_batches, optim::Work::home, groups);
}

using Gpt = models::BasicGpt<double>;
using Sharded = FullyShardedDataParallel<TensorParallel<PipelineParallel<Gpt>>>;

struct Layout {
  std::size_t world;
  Degrees degrees;
  std::size_t micro_batches;
  int stage = 0;
  std::size_t replicate = 1;
};

}  // namespace

TEST_CASE("one step is the formula: momentum, Newton and Schulz, scale, decoupled decay; the rest is AdamW's") {
  DefaultDevice device;
  SingleDevice<Gpt> model(device, config), other(device, config);
  optim::Muon muon(model, {.learning_rate = 0.01, .weight_decay = 0.1});
  optim::AdamW adamw(other, {.learning_rate = 0.01, .beta2 = 0.95, .weight_decay = 0.1});
  const Weights before = weights_of(model);
  model.train_step(make_batch(0, 0, 1, 1));
  other.train_step(make_batch(0, 0, 1, 1));
  Weights gradients;
  for (const std::string& name : model.parameter_names()) gradients[name] = model.gradient(name);
  muon.step();
  adamw.step();
  const Weights after = weights_of(model), by_adamw = weights_of(other);
  // x [rows, columns] after five steps, by plain loops.
  const auto orthogonal = [](std::vector<double> x, std::size_t rows, std::size_t columns) {
    double norm = 0;
    for (const double v : x) norm += v * v;
    for (double& v : x) v /= std::sqrt(norm) + 1e-7;
    for (int step = 0; step < 5; ++step) {
      std::vector<double> gram(rows * rows), poly(rows * rows), next(x.size());
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < rows; ++j)
          for (std::size_t k = 0; k < columns; ++k) gram[i * rows + j] += x[i * columns + k] * x[j * columns + k];
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < rows; ++j) {
          poly[i * rows + j] = -4.7750 * gram[i * rows + j];
          for (std::size_t k = 0; k < rows; ++k) poly[i * rows + j] += 2.0315 * gram[i * rows + k] * gram[k * rows + j];
        }
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j) {
          next[i * columns + j] = 3.4445 * x[i * columns + j];
          for (std::size_t k = 0; k < rows; ++k) next[i * columns + j] += poly[i * rows + k] * x[k * columns + j];
        }
      x = next;
    }
    return x;
  };
  std::size_t matrices = 0;
  model.for_each_state([&](ParameterState& state) {
    const std::string& name = state.name();
    const bool is_matrix = state.global().rank() == 2 && name.find(".h.") != std::string::npos;
    if (!is_matrix) {
      CHECK_MESSAGE(after.at(name) == by_adamw.at(name), name);
      return;
    }
    ++matrices;
    const std::size_t rows = state.global()[0], columns = state.global()[1];
    // Query, key and value are three matrices in one parameter.
    const std::vector<std::size_t> parts =
        name.find("c_attn") != std::string::npos ? std::vector<std::size_t>{16, 8, 8} : std::vector<std::size_t>{columns};
    std::size_t first = 0;
    for (const std::size_t width : parts) {
      std::vector<double> g(rows * width);
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < width; ++j) g[i * width + j] = gradients.at(name)[i * columns + first + j] * 1.95;
      const std::vector<double> o = orthogonal(g, rows, width);
      const double scale = 0.2 * std::sqrt(double(std::max(rows, width)));
      double worst = 0;
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < width; ++j) {
          const std::size_t at = i * columns + first + j;
          worst =
              std::max(worst, std::abs(before.at(name)[at] * (1 - 0.001) - 0.01 * scale * o[i * width + j] - after.at(name)[at]));
        }
      CHECK_MESSAGE(worst <= 1e-10, name);
      first += width;
    }
  });
  CHECK(matrices == 16);
}

TEST_CASE("equal to one rank: data, tensor and pipeline parallelism, stages of ZeRO, copies of shards") {
  const Run expected = reference<Gpt>(config);
  for (const Layout& layout : {Layout{1, {}, 2}, Layout{2, {}, 2}, Layout{4, {}, 1, 1}, Layout{4, {}, 2, 2}, Layout{4, {}, 2, 3},
                               Layout{2, {.tp = 2}, 1}, Layout{4, {.tp = 4}, 1}, Layout{2, {.pp = 2}, 4},
                               Layout{4, {.tp = 2}, 2, 3}, Layout{4, {.tp = 2}, 2, 0}, Layout{4, {.pp = 2}, 2, 2},
                               Layout{8, {.tp = 2, .pp = 2}, 2, 1}, Layout{4, {}, 1, 3, 2}, Layout{8, {.tp = 2}, 1, 2, 2}})
    for (const optim::Work work : {optim::Work::home, optim::Work::everywhere}) {
      INFO("world " << layout.world << ", tp " << layout.degrees.tp << ", pp " << layout.degrees.pp << ", stage " << layout.stage
                    << ", replicate " << layout.replicate << ", work " << int(work));
      check_equal(train_on<Sharded, dp, tp, pp>(config, layout.world, layout.degrees, layout.micro_batches, work,
                                                {.shard = {.stage = layout.stage, .replicate = layout.replicate}}),
                  expected, 1e-10);
    }
}

// Two stages hold it whole, and each transforms its own.
TEST_CASE("equal to one rank: a matrix that the first and the last stage of a pipeline share") {
  const Groups groups{{.match = "*.wte.weight", .rule = "muon"}};
  const Run expected = reference<Gpt>(config, {}, 1, groups);
  CHECK(expected.weights.at("transformer.wte.weight") != reference<Gpt>(config).weights.at("transformer.wte.weight"));
  for (const Layout& layout : {Layout{2, {.pp = 2}, 4}, Layout{4, {.pp = 2}, 2, 2}, Layout{4, {.tp = 2, .pp = 2}, 4}})
    for (const optim::Work work : {optim::Work::home, optim::Work::everywhere}) {
      INFO("world " << layout.world << ", tp " << layout.degrees.tp << ", stage " << layout.stage << ", work " << int(work));
      check_equal(train_on<Sharded, dp, tp, pp>(config, layout.world, layout.degrees, layout.micro_batches, work,
                                                {.shard = {.stage = layout.stage}}, groups),
                  expected, 1e-10);
    }
}

TEST_CASE("equal to one rank: context and sequence parallelism, interleaved stages") {
  using Model = models::BasicLlama<double>;
  using Composition = FullyShardedDataParallel<ContextParallel<SequenceParallel<PipelineParallel<Model>>>>;
  const Run expected = reference<Model>(llama);
  ModelOptions options;
  for (const Layout& layout : {Layout{2, {.cp = 2}, 2}, Layout{4, {.tp = 2, .cp = 2}, 2}, Layout{4, {.cp = 2}, 2, 3},
                               Layout{4, {.tp = 2, .pp = 2}, 2}}) {
    INFO("world " << layout.world << ", cp " << layout.degrees.cp << ", stage " << layout.stage);
    options.shard.stage = layout.stage;
    check_equal(train_on<Composition, dp, cp, tp, pp>(llama, layout.world, layout.degrees, layout.micro_batches,
                                                      optim::Work::home, options),
                expected, 1e-10);
  }
}

TEST_CASE("equal to one rank: experts over ep and etp, beside tp, pp and stages of ZeRO") {
  using Model = models::BasicMixtral<double>;
  models::MixtralConfig of = mixtral_config();
  of.dropout = 0;
  const Run expected = reference<Model>(of);
  ModelOptions options;
  for (const Layout& layout : {Layout{2, {.ep = 2}, 2}, Layout{4, {.ep = 2}, 2, 3}, Layout{4, {.tp = 2, .ep = 2, .etp = 2}, 2, 1},
                               Layout{4, {.ep = 2, .pp = 2}, 2}}) {
    INFO("world " << layout.world << ", tp " << layout.degrees.tp << ", ep " << layout.degrees.ep << ", etp "
                  << layout.degrees.etp << ", stage " << layout.stage);
    options.shard.stage = layout.stage;
    Run seen;  // a rank names the experts that it holds only
    std::mutex mutex;
    const int code = runtime::run(runtime::RunOptions{.ranks = int(layout.world)}, [&](World& rank) {
      ExpertMesh mesh(rank, layout.degrees);
      FullyShardedDataParallel<TensorParallel<ExpertParallel<PipelineParallel<Model>>>> model(mesh, of, options);
      const auto data = mesh.comm(dp{});
      optim::Muon optimizer(model, options_of(optim::Work::home));
      std::vector<double> losses;
      for (int step = 0; step < 3; ++step) {
        losses.push_back(
            model.train_step(make_batch(step, std::size_t(data.rank()), std::size_t(data.size()), layout.micro_batches)));
        optimizer.step();
      }
      const std::lock_guard lock(mutex);
      seen.losses = losses;
      model.for_each_state([&](ParameterState& state) {
        auto& values = seen.weights[state.name()];
        values.resize(state.global().size());
        const weft::detail::Buffer value = weft::detail::value_of(model.device(), state);
        for (const auto& run : state.runs())
          for (std::size_t i = 0; i < run.length; ++i)
            values[run.global + i] = static_cast<const double*>(value.get())[run.local + i];
      });
    });
    CHECK(code == 0);
    check_equal(seen, expected, 1e-10);
  }
}

TEST_CASE("reproducible runs: the bits of one rank, whatever the data ranks, stages and homes") {
  ModelOptions options{.numerics = {.reproducible = true}};
  const Run expected = reference<Gpt>(config, options, 8);
  for (const int stage : {0, 1, 2, 3})
    for (const Layout& layout : {Layout{2, {}, 4}, Layout{4, {.pp = 2}, 4}})
      for (const optim::Work work : {optim::Work::home, optim::Work::everywhere}) {
        INFO("stage " << stage << ", world " << layout.world << ", pp " << layout.degrees.pp << ", work " << int(work));
        options.shard.stage = stage;
        const Run seen = train_on<Sharded, dp, tp, pp>(config, layout.world, layout.degrees, layout.micro_batches, work, options);
        CHECK(seen.weights == expected.weights);
        CHECK(seen.losses == expected.losses);
      }
}

TEST_CASE("bfloat16 models and bfloat16 products train, in every stage alike") {
  using Half = FullyShardedDataParallel<models::BasicGpt<bfloat16>>;
  std::vector<double> losses[4];
  for (const int stage : {0, 1, 2, 3})
    CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
            Mesh<dp> mesh(world);
            Half model(
                mesh, config,
                {.shard = {.stage = stage}, .numerics = {.gradient = stage ? std::optional(DataType::float32) : std::nullopt}});
            optim::Muon optimizer(model, {.learning_rate = 0.02, .products = DataType::bfloat16});
            for (int step = 0; step < 12; ++step) {
              const double loss = model.train_step(make_batch(0, std::size_t(world.rank()), 2, 1));
              if (world.rank() == 0) losses[stage].push_back(loss);
              optimizer.step();
            }
          }) == 0);
  for (const int stage : {0, 1, 2, 3}) {
    CHECK(losses[stage].back() < 0.8 * losses[stage].front());
    CHECK(losses[stage] == losses[0]);  // one micro-batch: the same sums
  }
}

TEST_CASE("refused groups and options") {
  DefaultDevice device;
  const auto text_of = [](auto&& f) {
    try {
      f();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  SingleDevice<Gpt> model(device, config), offloaded(device, config, {.shard = {.offload = Offload::host()}});
  CHECK(text_of([&] { optim::Muon{offloaded}; }) ==
        "weft: this optimizer's rule needs whole matrices and the state of transformer.h.0.attn.c_attn.weight is offloaded "
        "(ModelOptions::shard.offload), which is updated piece by piece: leave offload out, or use an elementwise rule, such as "
        "AdamW's");
  CHECK(text_of([&] { optim::Muon(model, {.steps = 0}); }) == "weft: steps 0: Newton and Schulz's iteration has at least one");
  CHECK(text_of([&] { optim::Muon(model, {.products = DataType::float16}); }) ==
        "weft: products float16: Muon's are in float32 or bfloat16");
  CHECK(text_of([&] { optim::Muon(model, {.groups = {{.match = "*.bias", .rule = "adam"}}}); }) ==
        "weft: group \"*.bias\" asks for the rule \"adam\": this optimizer's are \"muon\" and \"adamw\"");
  CHECK(text_of([&] {
          optim::Muon(model, {.groups = {{.match = "*.ln_1.bias", .rule = "muon"}}});
        }).starts_with("weft: group \"*.ln_1.bias\" asks for the rule \"muon\" for transformer.h.0.ln_1.bias ["));
  CHECK(
      text_of([&] { optim::AdamW(model, {.groups = {{.match = "*.bias", .rule = "adamw"}}}); }) ==
      "weft: group \"*.bias\" asks for the rule \"adamw\", and this optimizer has one rule: leave it out, or use an optimizer of "
      "two, such as Muon");
}
