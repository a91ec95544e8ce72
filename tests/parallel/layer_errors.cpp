// SPDX-License-Identifier: Apache-2.0
// covers: weft/engine/layer_error.hpp
// The layer's path in errors of whole models: in training, evaluation, logits and predictions, on every axis and on the stage of
// a pipeline that has the layer; and the line that `run` prints.

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <weft/engine/layer_error.hpp>
#include <weft/weft.hpp>

#include "support/batches.hpp"
#include "support/temporary_folder.hpp"

using namespace weft;
using weft_test::make_batch;

namespace {

/// A block whose second layer does not fit in block 3.
struct Mlp : Module<Mlp> {
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  Mlp(const auto& context, std::size_t width, std::size_t index)
      : up(context, "up", {16, width}, normal(0.02)),
        down(context, "down", {width, index == 3 ? std::size_t(12) : 16}, normal(0.02)) {}
  auto forward(const auto& x) const { return matmul(silu(matmul(x, up)), down); }
};
struct Block : Module<Block> {
  LayerNorm norm;
  Mlp mlp;
  Block(const auto& context, std::size_t width, std::size_t index)
      : norm(context / "norm", width), mlp(context / "mlp", width, index) {}
  auto forward(const auto& x) const { return x + to<Invariant<tp>>(mlp(to<Replicated<tp>>(norm(x)))); }
};
struct Recipe {
  struct Config {
    std::size_t vocabulary = weft_test::batch_vocabulary, layers = 4, width = 8;
  };
  using scalar = double;
  using Front = Embedding;
  using Block = ::Block;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(context / "blocks" / std::to_string(index), config.width, index);
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

inline constexpr data::Field<"x", double> input;
struct First : Module<First> {
  Linear<> linear;
  First(const auto& context) : linear(context / "linear", 4, 6) {}
  auto forward(const auto& batch) const { return linear(batch[input]); }
};
struct Last : Module<Last> {
  Linear<> linear;
  Last(const auto& context) : linear(context / "linear", 5, 1) {}
  auto predict(const auto& x) const { return linear(x); }
  auto forward(const auto& x, const auto&) const { return sum_losses(square(predict(x))); }
};
struct Net {
  struct Config {};
  using scalar = double;
  using Batch = FieldBatch<input>;
  static auto stack(const auto& context, const Config&) {
    return Stack([=] { return First(context / "first"); }, [=] { return Last(context / "last"); });
  }
};

/// Runs the program on two ranks; returns its standard error.
template <class F>
std::string printed(const F& program) {
  const weft_test::TemporaryFolder folder;
  const std::string file = (folder.path / "error").string();
  std::fflush(stderr);
  const int before = ::dup(2);
  REQUIRE(std::freopen(file.c_str(), "w", stderr) != nullptr);
  const int code = run(RunOptions{.ranks = 2}, program);
  std::fflush(stderr);
  ::dup2(before, 2);
  ::close(before);
  CHECK(code == 1);
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

/// The texts of train_step, evaluate and logits of a language model.
template <class Make>
std::vector<std::string> texts_of(std::size_t data_ranks, const Make& make) {
  const auto batch = [&](World& world) { return make_batch(0, data_ranks == 2 ? std::size_t(world.rank()) : 0, data_ranks, 1); };
  return {printed([&](World& world) { make(world, [&](auto& model) { model.train_step(batch(world)); }); }),
          printed([&](World& world) { make(world, [&](auto& model) { model.evaluate(batch(world)); }); }),
          printed([&](World& world) { make(world, [&](auto& model) { model.logits(weft_test::prompt()); }); })};
}

/// True if the text is the one line that names block 3's layer, the operation and its parameter; `operands` is the text after the
/// number of rows, which differs between calls.
bool names_layer(const std::string& text, const std::string& operands) {
  return text.starts_with("weft: blocks.3.mlp: matmul([") && text.ends_with(operands + "\n") &&
         text.find('\n') == text.size() - 1;
}

}  // namespace

TEST_CASE("a language model's calls print the layer, the operation and the parameter") {
  for (const std::string& text : texts_of(2, [](World&world, const auto&call) {
         Mesh<dp> mesh(world);
         DataParallel<Recipe> model(mesh, {});
         call(model);
       })) {
    INFO(text);
    CHECK(names_layer(text, ", 16], down [8, 12]): the summed dims differ, 16 and 12"));
  }
  for (const std::string& text : texts_of(1, [](World&world, const auto&call) {
         Mesh<tp> mesh(world, {.tp = 2});
         TensorParallel<Recipe> model(mesh, {});
         call(model);
       })) {
    INFO(text);
    CHECK(names_layer(text, ", 8], down [8, 6]): the summed dims differ, 8 and 6"));
  }
  for (const std::string& text : texts_of(1, [](World&world, const auto&call) {
         Mesh<pp> mesh(world, {.pp = 2});
         PipelineParallel<Recipe> model(mesh, {});
         call(model);
       })) {
    INFO(text);
    CHECK(names_layer(text, ", 16], down [8, 12]): the summed dims differ, 16 and 12"));
  }
}

TEST_CASE("predictions of a stack print the layer") {
  const auto text = printed([](World& world) {
    Mesh<dp> mesh(world);
    DataParallel<Net> model(mesh, {});
    Net::Batch batch{.samples = 3};
    batch[input].resize(3, {4});
    model.predict(batch);
  });
  INFO(text);
  CHECK(text == "weft: last.linear: matmul([3, 6], weight [1, 5]): the summed dims differ, 6 and 5\n");
}
