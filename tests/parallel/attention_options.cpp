// SPDX-License-Identifier: Apache-2.0
// The options of Llama-like models (biases, a norm of queries and keys, a separate head width, scaled rotary positions) in
// several layouts compared with one rank: tp with rows sharded between blocks and more ranks than key heads, cp by a ring and by
// heads, pp, ZeRO.

#include "support/matrix.hpp"

using namespace weft_test;

namespace {

using Relatives = FullyShardedDataParallel<ContextParallel<SequenceParallel<Staged<models::BasicLlama<double>>>>>;

void check(const models::LlamaConfig& config, const std::vector<MatrixEntry>& entries, ContextMethod context) {
  const Reference reference = reference_of<models::BasicLlama<double>>(config);
  for (const MatrixEntry& entry : entries) {
    ModelOptions options;
    options.shard.stage = entry.zero;
    options.context = context;
    options.pipeline.schedule = schedule::choose(entry.schedule);
    check_folded<Relatives, comm::Threads, DenseMesh>(config, reference, {entry.world, entry.degrees, entry.micro_batches}, 1e-12,
                                                      options);
  }
}

models::LlamaConfig relative(models::AttentionBias bias, bool norm, RopeScaling scaling) {
  models::LlamaConfig config = llama_config();
  config.layers = 4;
  config.attention = {.head_width = 6, .bias = bias, .query_key_norm = norm, .rope_scaling = scaling};
  return config;
}
const RopeScaling linear_scaling{.type = RopeScaling::Type::linear, .factor = 3};
const RopeScaling llama3_scaling{.type = RopeScaling::Type::llama3, .factor = 8, .original_sequence = 20};

}  // namespace

TEST_CASE("all of them at once") {
  const auto config = relative(models::AttentionBias::all, true, llama3_scaling);
  check(config,
        {{2, {.tp = 2}, 2},
         {4, {.tp = 4}, 1},
         {2, {.cp = 2}, 2},
         {2, {.pp = 2}, 4, "1f1b"},
         {2, {}, 2, "1f1b", 3},
         {8, {.tp = 2, .pp = 2}, 4, "zbv", 2},
         {8, {.tp = 2, .cp = 2}, 2, "1f1b", 3}},
        ContextMethod::ring);
  check(config, {{2, {.cp = 2}, 2}, {4, {.tp = 2, .cp = 2}, 2}}, ContextMethod::ulysses);
}
TEST_CASE("Qwen2's biases, linear scaling, every activation recomputed") {
  auto config = relative(models::AttentionBias::query_key_value, false, linear_scaling);
  config.attention.head_width = 0;
  config.tied = true;
  for (const Recomputation recompute : {Recomputation::selective, Recomputation::full}) {
    config.recompute = recompute;
    check(config, {{2, {.tp = 2}, 2}, {4, {.tp = 2, .pp = 2}, 4, "interleaved", 0}, {4, {.cp = 2}, 2, "1f1b", 1}},
          ContextMethod::ring);
  }
}
TEST_CASE("a norm alone, recomputed") {
  auto config = relative(models::AttentionBias::none, true, {});
  config.recompute = Recomputation::selective;
  check(config, {{2, {.tp = 2}, 2}, {2, {}, 4, "1f1b", 3}}, ContextMethod::ring);
}
TEST_CASE("sizes that cannot be") {
  const auto refused = [](models::LlamaConfig config, const char* text) {
    DefaultDevice device;
    CHECK_THROWS_WITH_AS(SingleDevice<models::Llama>(device, config), doctest::Contains(text), LayoutError);
  };
  refused({.attention = {.head_width = 7}}, "rotary positions need an even head width, not 7");
  refused({.heads = 0, .attention = {.head_width = 8}}, "heads(0) must be at least 1");
  refused({.width = 30, .heads = 4}, "width(30) % heads(4) != 0");
  refused({.attention = {.rope_scaling = {.type = RopeScaling::Type::linear, .factor = -1}}},
          "the factor of their scaling must be a finite number above 0");
}
TEST_CASE("parameters of options exist only if the options are set") {
  const auto names = [](const models::AttentionOptions& attention) {
    DefaultDevice device;
    SingleDevice<models::Llama> model(device, {.layers = 1, .width = 12, .heads = 2, .attention = attention});
    std::string all;
    model.for_each_state([&](ParameterState& state) {
      if (state.name().find("self_attn") != std::string::npos) all += state.name().substr(25) + state.global().text() + " ";
    });
    return all;
  };
  CHECK(names({}) == "k_proj.weight[12, 12] o_proj.weight[12, 12] q_proj.weight[12, 12] v_proj.weight[12, 12] ");
  CHECK(names({.head_width = 4, .bias = models::AttentionBias::query_key_value, .query_key_norm = true}) ==
        "k_norm.weight[4] k_proj.bias[8] k_proj.weight[8, 12] o_proj.weight[12, 8] q_norm.weight[4] q_proj.bias[8] "
        "q_proj.weight[8, 12] v_proj.bias[8] v_proj.weight[8, 12] ");
  CHECK(names({.bias = models::AttentionBias::all}).find("o_proj.bias[12] o_proj.weight[12, 12] ") != std::string::npos);
}
