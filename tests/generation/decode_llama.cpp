// SPDX-License-Identifier: Apache-2.0
// Llama, with rotary positions, grouped heads and a window, decodes with a cache to the same logits as its whole forward, in
// every layout.

#include "generation/decoding.hpp"

using namespace weft_test;

namespace {
using Model = models::BasicLlama<double>;
models::LlamaConfig config_of() {
  models::LlamaConfig config = llama_config();
  config.layers = 4;
  return config;
}
}  // namespace

TEST_CASE("Llama decodes with a cache as its whole forward does") {
  const std::vector<DecodedLayout> layouts = {
      {2, {.tp = 2}}, {4, {.tp = 4}}, {2, {.pp = 2}, "interleaved"}, {4, {.tp = 2, .pp = 2}}};
  check_decoding<DataParallel<TensorParallel<PipelineParallel<Model>>>, Mesh<dp, tp, pp>>(config_of(), layouts, 1e-12);
  models::LlamaConfig window = config_of();
  window.mask.window = 3;
  check_decoding<DataParallel<TensorParallel<PipelineParallel<Model>>>, Mesh<dp, tp, pp>>(window, {{4, {.tp = 2, .pp = 2}}},
                                                                                          1e-12);
}

TEST_CASE("Llama's relatives decode the same") {
  models::LlamaConfig config = config_of();
  config.attention = {.head_width = 6,
                      .bias = models::AttentionBias::all,
                      .query_key_norm = true,
                      .rope_scaling = {.type = RopeScaling::Type::linear, .factor = 4}};
  check_decoding<DataParallel<TensorParallel<PipelineParallel<Model>>>, Mesh<dp, tp, pp>>(config, {{4, {.tp = 2, .pp = 2}}},
                                                                                          1e-12);
}

TEST_CASE("Llama whose rows tp cuts between blocks decodes the same") {
  check_decoding<FullyShardedDataParallel<SequenceParallel<PipelineParallel<Model>>>, Mesh<dp, tp, pp>>(
      config_of(), {{2, {.tp = 2}}, {4, {.tp = 2, .pp = 2}}}, 1e-12);
}
