// SPDX-License-Identifier: Apache-2.0
// Ranks with other inputs than their peers are refused: options and config when a model is made, batches in each step. The error
// names the difference and its place.

#include "support/parity.hpp"

#include <array>
#include <functional>
#include <memory>

#include <weft/core/fields.hpp>
#include <weft/parallel/same_inputs.hpp>

using namespace weft_test;

namespace {

using Model = models::BasicGpt<float>;
using AllAxes = DataParallel<ContextParallel<TensorParallel<PipelineParallel<Model, schedule::OneForwardOneBackward>>, Ring>>;
using AllMesh = Mesh<dp, cp, tp, pp>;

models::GptConfig small() {
  models::GptConfig config = gpt_config();
  config.layers = 2;
  return config;
}

// The UsageError of body(world, mesh) on each rank.
std::vector<std::string> said(int ranks, const Degrees& degrees, const std::function<void(World&, const AllMesh&)>& body) {
  std::vector<std::string> all(static_cast<std::size_t>(ranks));
  const int code = runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
    AllMesh mesh(world, degrees);
    try {
      body(world, mesh);
    } catch (const UsageError& error) {
      all[std::size_t(world.rank())] = error.what();
    }
  });
  CHECK(code == 0);
  return all;
}
// The same on all ranks.
std::string said_by_all(int ranks, const Degrees& degrees, const std::function<void(World&, const AllMesh&)>& body) {
  const auto all = said(ranks, degrees, body);
  for (const std::string& one : all) CHECK(one == all[0]);
  return all[0];
}
std::string of_options(int ranks, const Degrees& degrees, int other,
                       const std::function<void(models::GptConfig&, ModelOptions&)>& change) {
  return said_by_all(ranks, degrees, [&](World& world, const AllMesh& mesh) {
    models::GptConfig config = small();
    ModelOptions options;
    if (world.rank() >= other) change(config, options);
    AllAxes model(mesh, config, options);
  });
}
std::string of_batch(int ranks, const Degrees& degrees, const std::function<void(World&, Batch&)>& change,
                     bool evaluates = false) {
  return said_by_all(ranks, degrees, [&](World& world, const AllMesh& mesh) {
    AllAxes model(mesh, small());
    Batch batch = make_batch(3, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), 2);
    batch.step = 3;
    change(world, batch);
    if (evaluates) model.evaluate(batch);
    else model.train_step(batch);
  });
}

struct Odd {
  std::size_t width = 1;
  double rate = 0.5;
  std::string name = "a";
  int sizes[3] = {1, 2, 3};
  std::vector<std::string> parts = {"x"};
  std::optional<float> maybe = {};
  models::GptConfig inner = {};
  std::function<void()> call = {};
};
class Closed {
 public:
  explicit Closed(int value) : value_(value) {}

 private:
  [[maybe_unused]] int value_;
};
struct Based : models::GptConfig {
  int more = 0;
};
struct Cannot {
  int one = 0;
  Closed two = Closed(1);
};
static_assert(detail::field_count<Odd> == 8 && detail::field_count<models::GptConfig> == 16 &&
              detail::field_count<models::LlamaConfig> > 5 && detail::field_count<models::MixtralConfig> > 5);
static_assert(detail::field_count<Closed> == -1 && detail::field_count<Based> == -1 && detail::field_count<Cannot> == -1 &&
              detail::field_count<int> == -1);

}  // namespace

TEST_CASE("options and config") {
  const auto ends = [](const std::string& text, const char* begin) {
    CHECK_MESSAGE(text.find(begin) == 0, text);
    CHECK(text.find(": all ranks make a model with the same seed, options and config") != std::string::npos);
  };
  ends(of_options(2, {}, 1, [](auto&, ModelOptions& o) { o.seed = 2; }),
       "weft: ModelOptions::seed is 1 on rank 0 and 2 on rank 1 of 2");
  ends(of_options(4, {.tp = 2}, 3, [](auto&, ModelOptions& o) { o.data.bucket_bytes = 7; }),
       "weft: ModelOptions::data.bucket_bytes is 26214400 on rank 0 and 7 on rank 3 of 4");
  ends(of_options(2, {.pp = 2}, 1, [](auto&, ModelOptions& o) { o.numerics.reduce = DataType::bfloat16; }),
       "weft: ModelOptions::numerics.reduce on rank 1 is not that on rank 0 of 2");
  ends(of_options(2, {}, 1, [](auto&, ModelOptions& o) { o.numerics.loss_scale = LossScaleOptions{.initial = 8}; }),
       "weft: ModelOptions::numerics.loss_scale on rank 1 is not that on rank 0 of 2");
  ends(of_options(2, {}, 1, [](auto&, ModelOptions& o) { o.numerics.compare_every = 0; }),
       "weft: ModelOptions::numerics.compare_every is 100 on rank 0 and 0 on rank 1");
  ends(of_options(8, {.tp = 2, .cp = 2, .pp = 2}, 5, [](models::GptConfig& c, auto&) { c.width = 64; }),
       "weft: field 3 of the model's Config is 32 on rank 0 and 64 on rank 5 of 8");
  ends(of_options(2, {.cp = 2}, 1, [](models::GptConfig& c, auto&) { c.dropout = 0.2; }),
       "weft: field 7 of the model's Config on rank 1 is not that on rank 0 of 2");
  ends(of_options(2, {}, 1, [](models::GptConfig& c, auto&) { c.recompute = Recomputation::full; }),
       "weft: field 10 of the model's Config on rank 1 is not that on rank 0 of 2");
  CHECK(of_options(4, {.tp = 2}, 0, [](models::GptConfig& c, ModelOptions& o) { c.dropout = 0.3, o.seed = 9; }) == "");
}

TEST_CASE("batches of one share") {
  const std::string why =
      "work on one share, so each takes the same Batch: make it for mesh.rank(dp{}) of mesh.size(dp{}), not for the rank in the "
      "world";
  const auto last = [](auto change) {
    return [=](World& world, Batch& batch) {
      if (world.rank() + 1 == world.size()) change(batch);
    };
  };
  for (const auto& [degrees, axis] : {std::pair<Degrees, std::string>{{.tp = 2}, "tp"}, {{.cp = 2}, "cp"}, {{.pp = 2}, "pp"}}) {
    const std::string peers = ": the 2 ranks of " + axis + " " + why;
    for (const bool evaluates : {false, true}) {
      CHECK(of_batch(2, degrees, last([](Batch& b) { b.targets[5] = 1 - b.targets[5] % 2; }), evaluates) ==
            "weft: batch: targets on " + axis + " rank 1 are not " + axis + " rank 0's" + peers);
      CHECK(of_batch(2, degrees, last([](Batch& b) { std::swap(b.tokens[1], b.tokens[2]); }), evaluates) ==
            "weft: batch: tokens on " + axis + " rank 1 are not " + axis + " rank 0's" + peers);
      CHECK(of_batch(2, degrees, last([](Batch& b) { b.step = 4; }), evaluates) ==
            "weft: batch: step is 3 on " + axis + " rank 0 and 4 on " + axis + " rank 1" + peers);
      CHECK(of_batch(2, degrees, last([](Batch& b) { b.micro_batches = 4; }), evaluates) ==
            "weft: batch: micro_batches is 2 on " + axis + " rank 0 and 4 on " + axis + " rank 1" + peers);
      CHECK(of_batch(
                2, degrees,
                [](World& world, Batch& b) {
                  b = make_batch(3, std::size_t(world.rank()), std::size_t(world.size()), 2);
                  b.step = 3;
                },
                evaluates) == "weft: batch: first_sequence is 0 on " + axis + " rank 0 and 4 on " + axis + " rank 1" + peers);
    }
  }
}

TEST_CASE("shares of data ranks") {
  CHECK(of_batch(2, {}, [](World& world, Batch& b) { b.step += std::uint64_t(world.rank()); }) ==
        "weft: batch: step 3 on dp rank 0, 4 on dp rank 1: ranks are at different steps; give each the same Batch::step, the "
        "number of the training step");
  CHECK(of_batch(2, {}, [](World&, Batch& b) { b.first_sequence = 0; }) ==
        "weft: batch: dp rank 1's share begins at sequence 0, which dp rank 0's share [0, 4) holds: set Batch::first_sequence to "
        "the index in the global batch of the share's first sequence (dropout goes by it)");
  CHECK(
      of_batch(4, {}, [](World&, Batch& b) { b.first_sequence *= 2; }) ==
      "weft: batch: sequences 2 to 3 of the global batch are in no share: dp rank 0's ends before sequence 2, dp rank 1's begins "
      "at 4; set Batch::first_sequence to the index of the share's first sequence, made for mesh.rank(dp{}) of mesh.size(dp{})");
  // A share made for the rank in the world, of 4 ranks that are dp(2) * tp(2), by a program whose tp ranks agree.
  CHECK(said(4, {.tp = 2},
             [](World& world, const AllMesh& mesh) {
               AllAxes model(mesh, small());
               Batch batch = make_batch(3, std::size_t(world.rank() / 2 * 2), 4, 2);
               model.train_step(batch);
             })[0]
            .find("weft: batch: sequences 2 to 3 of the global batch are in no share") == 0);
  // If data-parallel ranks communicate in each micro-batch, all must have the same number of them.
  const auto of_stage = [](int stage, bool evaluates) {
    return said_by_all(2, {.tp = 1}, [&](World& world, const AllMesh&) {
      Mesh<dp> mesh(world);
      ModelOptions options;
      options.shard.stage = stage;
      FullyShardedDataParallel<Model> model(mesh, small(), options);
      const Batch batch = make_batch(3, std::size_t(world.rank()), 2, world.rank() == 0 ? 2 : 4);
      if (evaluates) model.evaluate(batch);
      else model.train_step(batch);
    });
  };
  for (const bool evaluates : {false, true}) {
    CHECK(of_stage(3, evaluates)
              .starts_with("weft: batch: 2 micro-batches on dp rank 0, 4 on dp rank 1: data ranks communicate in each"));
    CHECK(of_stage(1, evaluates) == "");
  }
  // Shares may begin anywhere, in any order of ranks, with any sizes.
  CHECK(of_batch(2, {}, [](World&, Batch& b) { b.first_sequence += 100; }) == "");
  CHECK(of_batch(4, {}, [](World&, Batch& b) { b.first_sequence = 6 - b.first_sequence; }) == "");
  CHECK(of_batch(2, {}, [](World& world, Batch& b) {
          const std::size_t sequences = world.rank() == 0 ? 2 : 6;
          const Batch whole = make_batch(3, 0, 1, 2);
          b = whole;
          b.sequences = sequences;
          b.first_sequence = world.rank() == 0 ? 0 : 2;
          b.tokens.assign(whole.tokens.begin(), whole.tokens.begin() + std::ptrdiff_t(sequences * b.length));
          b.targets.assign(whole.targets.begin(), whole.targets.begin() + std::ptrdiff_t(sequences * b.length));
        }) == "");
  // Data-parallel ranks may have different batches.
  CHECK(of_batch(
            2, {}, [](World& world, Batch& b) { b = make_batch(std::uint64_t(world.rank()), 0, 1, 2); }, true) == "");
}

// It has a base class, so its fields cannot be counted.
struct DerivedModel : models::BasicGpt<double> {
  struct Config : models::GptConfig {
    double more = 0;
  };
};

TEST_CASE("a config whose fields cannot be listed: the model made of it is compared") {
  const auto made = [](auto change) {
    return said(2, {}, [=](World& world, const AllMesh& mesh) {
      DerivedModel::Config config;
      static_cast<models::GptConfig&>(config) = small();
      if (world.rank() == 1) change(config);
      DataParallel<ContextParallel<TensorParallel<PipelineParallel<DerivedModel>>>> model(mesh, config);
    });
  };
  for (const auto& text : made([](auto&) {})) CHECK(text == "");
  const char* other =
      "weft: dp rank 1 makes another model than dp rank 0, of other names, shapes, initial values or dropouts: all ranks are "
      "given the same config";
  for (const auto& text : made([](auto& config) { config.dropout = 0.3; })) CHECK(text == other);
  for (const auto& text : made([](auto& config) { config.standard_deviation = 0.3; })) CHECK(text == other);
  for (const auto& text : made([](auto& config) { config.width *= 2; })) CHECK(text == other);
}

TEST_CASE("a prompt, and an optimizer's options and rate") {
  for (const Degrees& degrees : {Degrees{.tp = 2}, Degrees{.pp = 2}}) {
    const auto texts = said(2, degrees, [](World& world, const AllMesh& mesh) {
      AllAxes model(mesh, small());
      const std::vector<std::int32_t> tokens{1, 2, 3 + world.rank()};
      model.next_logits(tokens);
    });
    for (const auto& text : texts)
      CHECK(text.find(degrees.tp == 2 ? "weft: batch: tokens on tp rank 1 are not tp rank 0's"
                                      : "weft: batch: tokens on pp rank 1 are not pp rank 0's") == 0);
  }
  const auto step = [](double learning_rate, double decay, bool later) {
    return said(2, {}, [=](World& world, const AllMesh& mesh) {
      AllAxes model(mesh, small());
      const double mine = world.rank() == 1 ? 1 : 0;
      optim::AdamW optimizer(model,
                             {.learning_rate = later ? 1e-3 : 1e-3 + mine * learning_rate, .weight_decay = 0.01 + mine * decay});
      for (int i = 0; i < 2; ++i) {
        model.train_step(make_batch(std::uint64_t(i), std::size_t(world.rank()), 2, 1));
        if (later && i == 1) optimizer.step(1e-3 + mine * learning_rate);
        else optimizer.step();
      }
    });
  };
  for (const auto& text : step(0, 0, false)) CHECK(text == "");
  for (const auto& text : step(0, 0.1, false))
    CHECK(text ==
          "weft: optimizer step: rank 1's options are not the same as on rank 0: all ranks make an optimizer with the same "
          "options and take the same steps");
  for (const auto& text : step(1e-2, 0, false)) CHECK(text.find("weft: optimizer step: rank 1's options") == 0);
  for (const auto& text : step(1e-2, 0, true))
    CHECK(text.find("weft: optimizer step: rank 1's learning rate is 0.011000, not 0.001000 as on rank 0") == 0);
}

TEST_CASE("every field of an aggregate counts") {
  const auto hash = [](const Odd& odd) {
    std::uint64_t all = 0;
    CHECK(detail::hash_value(all, odd));
    return all;
  };
  std::vector<std::uint64_t> seen{hash({})};
  const auto other = [&](auto change) {
    Odd odd;
    change(odd);
    seen.push_back(hash(odd));
  };
  other([](Odd& o) { o.width = 2; });
  other([](Odd& o) { o.rate = 0.25; });
  other([](Odd& o) { o.name = "b"; });
  other([](Odd& o) { o.name = ""; });
  other([](Odd& o) { o.sizes[2] = 4; });
  other([](Odd& o) { o.parts = {"x", ""}; });
  other([](Odd& o) { o.parts = {}; });
  other([](Odd& o) { o.maybe = 0.0f; });
  other([](Odd& o) { o.inner.layers = 7; });
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
  std::uint64_t none = 0;
  CHECK(!detail::hash_value(none, std::make_shared<int>(1)));
  CHECK(!detail::hash_value(none, Closed(1)));
  CHECK(!detail::hash_value(none, static_cast<const char*>("text")));
}
