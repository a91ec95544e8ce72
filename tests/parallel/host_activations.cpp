// SPDX-License-Identifier: Apache-2.0
// Activations in host memory give the bits of activations that stay, for schedules, wrappers and kinds of recomputation; the peak
// of a rehearsal falls by them.
// covers: weft/pipeline/host_activations.hpp weft/tensor/made_tensors.hpp

#include <weft/models/llama.hpp>
#include <weft/pipeline/host_activations.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/runtime/rehearse.hpp>
#include <weft/tensor/made_tensors.hpp>

#include "support/message.hpp"
#include "support/parity.hpp"

using namespace weft_test;

namespace {

using Gpt = models::BasicGpt<double>;
using Llama = models::BasicLlama<float>;
template <class Model>
using Composition = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;

/// Its blocks have a hand-written backward.
struct Gelus : Gpt {
  using Block = Gelu;
  static Block make_block(const auto&, const Config&, std::size_t) { return {}; }
};

const models::GptConfig gpt{
    .vocabulary = batch_vocabulary, .layers = 4, .width = 32, .heads = 4, .sequence = batch_length, .dropout = 0.1};
const models::LlamaConfig llama{
    .vocabulary = batch_vocabulary, .layers = 4, .width = 64, .heads = 4, .kv_heads = 2, .sequence = batch_length};

struct Layout {
  std::size_t world;
  Degrees degrees;
  std::size_t micro_batches;
  int stage;
  const char* schedule = "1f1b";
};

/// Losses, norms, and the parameters after three steps.
template <class Model>
std::vector<double> numbers_of(const Layout& layout, const typename Model::Config& config, std::vector<std::string> on_host) {
  std::vector<double> numbers;
  CHECK(runtime::run(runtime::RunOptions{.ranks = int(layout.world)}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world, layout.degrees);
          ModelOptions options{.shard = {.stage = layout.stage}, .activations = {.on_host = on_host}};
          options.pipeline.schedule = schedule::choose(layout.schedule, 0);
          Composition<Model> model(mesh, config, options);
          optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 1.0});
          const auto data = mesh.comm(dp{});
          std::vector<double> mine;
          for (int step = 0; step < 3; ++step) {
            const Batch batch =
                make_batch(std::uint64_t(step), std::size_t(data.rank()), std::size_t(data.size()), layout.micro_batches);
            mine.push_back(model.train_step(batch));
            mine.push_back(optimizer.step().gradient_norm);
            mine.push_back(model.evaluate(batch));
          }
          for (const std::string& name : model.parameter_names())
            for (const auto value : model.parameter(name)) mine.push_back(double(value));
          if (world.rank() == 0) numbers = mine;
        }) == 0);
  return numbers;
}

template <class Model>
void check_bits(const typename Model::Config& config, std::initializer_list<Layout> layouts, const std::string& units) {
  for (const Layout& layout : layouts) {
    INFO("world " << layout.world << ", tp " << layout.degrees.tp << ", pp " << layout.degrees.pp << ", stage " << layout.stage
                  << ", " << layout.schedule);
    const std::vector<double> stays = numbers_of<Model>(layout, config, {});
    CHECK(stays.size() > 100);
    CHECK(numbers_of<Model>(layout, config, {units}) == stays);
  }
}

template <class Model>
Rehearsal rehearsed(const typename Model::Config& config, std::vector<std::string> on_host, std::size_t micro_batches = 1) {
  return rehearse({.ranks = 1}, [&](World& world) {
    Mesh<dp, tp, pp> mesh(world);
    Composition<Model> model(mesh, config, {.shard = {.stage = 0}, .activations = {.on_host = on_host}});
    model.train_step(make_batch(0, 0, 1, micro_batches));
  });
}

}  // namespace

TEST_CASE("GPT: the bits of activations that stay, in any layout and schedule") {
  check_bits<Gpt>(gpt,
                  {{1, {}, 1, 0},
                   {2, {}, 2, 3},
                   {2, {.tp = 2}, 1, 0},
                   {2, {.pp = 2}, 4, 0},
                   {2, {.pp = 2}, 4, 0, "zbv"},
                   {8, {.tp = 2, .pp = 2}, 2, 2}},
                  "block *");
}
TEST_CASE("Llama: the bits of activations that stay, beside each kind of recomputation") {
  for (const Recomputation recompute : {Recomputation::none, Recomputation::selective, Recomputation::full}) {
    models::LlamaConfig config = llama;
    config.recompute = recompute;
    check_bits<Llama>(config, {{1, {}, 2, 0}, {4, {.tp = 2}, 1, 3}}, "block *");
  }
}

TEST_CASE("a rehearsal has the memory that is left, and counts the copies") {
  models::GptConfig config = gpt;
  config.layers = 6;
  const Rehearsal stays = rehearsed<Gpt>(config, {}), leaves = rehearsed<Gpt>(config, {"block *"}),
                  some = rehearsed<Gpt>(config, {"block 0", "block 1"});
  MESSAGE("peak " << stays.peak << ", " << some.peak << " with two blocks on the host, " << leaves.peak << " with six");
  CHECK(leaves.peak < some.peak);
  CHECK(some.peak < stays.peak);
  CHECK(leaves.offloaded_bytes > double(stays.peak - leaves.peak));
  CHECK(stays.offloaded_bytes == 0);
}

TEST_CASE("units that there are not, or whose backward is hand-written") {
  DefaultDevice device;
  const auto refused = [&]<class Model>(const char* pattern, Model) {
    return message<UsageError>([&] { SingleDevice<Model>(device, gpt, {.activations = {.on_host = {pattern}}}); });
  };
  CHECK(refused("h.7", Gpt{}).starts_with("weft: ModelOptions::activations.on_host: no unit of the model matches h.7; it has "));
  CHECK(refused("block 2", Gelus{}) ==
        "weft: ModelOptions::activations.on_host: block 2 has a hand-written backward, whose saved values stay on the device: "
        "name other units");
}
