// SPDX-License-Identifier: Apache-2.0
// Folders of Qwen2, Qwen3 and Qwen3-MoE: one layout reads the files of another, with the same bits and their own names; tensors
// and configs of one model are refused by another. test_transformers.py compares logits.

#include <algorithm>
#include <string>
#include <vector>

#include <weft/hugging_face/hugging_face.hpp>

#include "support/experts.hpp"
#include "support/matrix.hpp"
#include "support/temporary_folder.hpp"
#include "support/transformers_folders.hpp"

using namespace weft_test;

namespace {

using Dense = FullyShardedDataParallel<TensorParallel<PipelineParallel<models::Llama>>>;
using Experts = FullyShardedDataParallel<TensorParallel<ExpertParallel<PipelineParallel<models::Mixtral>>>>;

template <class Composition, class Grid, class F>
void on(const MatrixEntry& layout, const typename Composition::Config& config, std::uint64_t seed, F&& f) {
  CHECK(runtime::run(runtime::RunOptions{.ranks = int(layout.world)}, [&](World& world) {
          Grid mesh(world, layout.degrees);
          ModelOptions options;
          options.seed = seed;
          options.shard.stage = layout.zero;
          options.pipeline.schedule = schedule::choose(layout.schedule);
          Composition model(mesh, config, options);
          f(model);
        }) == 0);
}

/// The names in the file that the last layout wrote.
template <class Composition, class Grid>
std::vector<std::string> check_layouts(const std::vector<MatrixEntry>& layouts, const typename Composition::Config& config) {
  TemporaryFolder place;
  const auto folder = [&](std::size_t i) { return (place.path / std::to_string(i)).string(); };
  on<Composition, Grid>(layouts[0], config, 7, [&](auto& model) {
    optim::Sgd optimizer(model, {.learning_rate = 0.1});  // so that biases and gains differ from their initial values
    model.train_step(make_batch(0, 0, 1, 1));
    optimizer.step();
    hugging_face::save(folder(0), model);
  });
  for (std::size_t i = 1; i < layouts.size(); ++i) {
    INFO("layout " << i);
    on<Composition, Grid>(layouts[i], hugging_face::read_config<typename Composition::Config>(folder(i - 1)), 8 + i,
                          [&](auto& model) {
                            hugging_face::load(folder(i - 1), model);
                            hugging_face::save(folder(i), model);
                          });
    CHECK(text_of(folder(i) + "/model.safetensors") == text_of(folder(0) + "/model.safetensors"));
    CHECK(text_of(folder(i) + "/config.json") == text_of(folder(0) + "/config.json"));
  }
  std::vector<std::string> names;
  const auto file = checkpoint::Safetensors::open(folder(0) + "/model.safetensors");
  for (const auto& tensor : file.tensors()) names.push_back(tensor.name);
  return names;
}
bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

models::LlamaConfig small(const models::AttentionOptions& attention) {
  return {.vocabulary = batch_vocabulary,
          .layers = 2,
          .width = 16,
          .heads = 4,
          .kv_heads = 2,
          .intermediate = 12,
          .sequence = batch_length,
          .attention = attention};
}
const models::AttentionOptions qwen3{.head_width = 6, .bias = models::AttentionBias::all, .query_key_norm = true};

}  // namespace

TEST_CASE("Qwen3 with biases and scaled positions") {
  auto config = small(qwen3);
  config.attention.rope_scaling = {.type = RopeScaling::Type::llama3, .factor = 8, .original_sequence = 20};
  const auto names = check_layouts<Dense, Mesh<dp, tp, pp>>(
      {{1, {}}, {4, {.tp = 2}, 2, "1f1b", 3}, {4, {.tp = 2, .pp = 2}, 2, "1f1b"}, {4, {.tp = 4}, 2, "1f1b", 0}}, config);
  for (const char* name : {"q_norm.weight", "k_norm.weight", "q_proj.bias", "v_proj.bias", "o_proj.bias"})
    CHECK(has(names, std::string("model.layers.1.self_attn.") + name));
}
TEST_CASE("Qwen2, tied") {
  auto config = small({.bias = models::AttentionBias::query_key_value});
  config.tied = true;
  const auto names =
      check_layouts<Dense, Mesh<dp, tp, pp>>({{1, {}}, {4, {.tp = 2, .pp = 2}, 2, "1f1b"}, {2, {}, 2, "1f1b", 1}}, config);
  CHECK(has(names, "model.layers.0.self_attn.k_proj.bias"));
  CHECK_FALSE(has(names, "model.layers.0.self_attn.o_proj.bias"));
  CHECK_FALSE(has(names, "lm_head.weight"));
}
TEST_CASE("Qwen3-MoE over experts, under its own names") {
  models::MixtralConfig config = mixtral_config();
  config.layers = 2;
  config.z_loss = config.dropout = 0;
  config.scores = nn::Scores::before_top_k;
  config.attention = {.head_width = 6, .query_key_norm = true};
  const auto names = check_layouts<Experts, ExpertMesh>(
      {{1, {}}, {2, {.ep = 2}}, {4, {.tp = 2, .ep = 4}, 2, "1f1b", 1}, {2, {.etp = 2}}}, config);
  for (const char* name : {"gate.weight", "experts.7.gate_proj.weight", "experts.0.up_proj.weight", "experts.3.down_proj.weight"})
    CHECK(has(names, std::string("model.layers.1.mlp.") + name));
  for (const std::string& name : names) CHECK(name.find("block_sparse_moe") == std::string::npos);
}

TEST_CASE("a folder of one is refused by a model of another, with the difference") {
  TemporaryFolder place;
  const std::string folder = place.path.string() + "/one";
  on<Dense, Mesh<dp, tp, pp>>({1, {}}, small(qwen3), 7, [&](auto& model) { hugging_face::save(folder, model); });
  const auto refused = [&](const models::AttentionOptions& attention, const char* text) {
    on<Dense, Mesh<dp, tp, pp>>({2, {.tp = 2}}, small(attention), 7, [&](auto& model) {
      const std::string said = message_of([&] { hugging_face::load(folder, model); });
      CHECK_MESSAGE(said.find(text) != std::string::npos, said);
    });
  };
  auto other = qwen3;
  other.head_width = 4;
  refused(other, "says attention.head_width 6, and this model has 4: make it of hugging_face::read_config(folder)");
  other = qwen3;
  other.bias = models::AttentionBias::none;
  refused(other, "says attention.bias 2, and this model has 0");
  other = qwen3;
  other.query_key_norm = false;
  refused(other, "says attention.query_key_norm 1, and this model has 0");
  other = qwen3;
  other.rope_scaling = {.type = RopeScaling::Type::linear, .factor = 2};
  refused(other, "says attention.rope_scaling.type 0, and this model has 1");
  // Tensors that the config does not announce.
  auto json = nlohmann::json::parse(text_of(folder + "/config.json"));
  json["attention_bias"] = false;
  write(folder + "/config.json", json.dump());
  other = qwen3;
  other.bias = models::AttentionBias::none;
  refused(other, "it has 8 tensors that this one has not: model.layers.0.self_attn.k_proj.bias");
  json["model_type"] = "llama";
  json["architectures"] = {"LlamaForCausalLM"};
  json.erase("use_sliding_window");
  write(folder + "/config.json", json.dump());
  refused({.head_width = 6}, "tensors that this one has not: model.layers.0.self_attn.k_norm.weight");
}
