// SPDX-License-Identifier: Apache-2.0
// Qwen3-MoE's attention with experts, in several layouts compared with one rank, with both kinds of router weights.

#include "support/matrix.hpp"

using namespace weft_test;

TEST_CASE("experts behind an attention with all options") {
  models::MixtralConfig config = mixtral_config();
  config.layers = 2;
  config.attention = {.head_width = 6,
                      .bias = models::AttentionBias::all,
                      .query_key_norm = true,
                      .rope_scaling = {.type = RopeScaling::Type::llama3, .factor = 4, .original_sequence = 20}};
  for (const nn::Scores scores : {nn::Scores::after_top_k, nn::Scores::before_top_k}) {
    config.scores = scores;
    const std::vector<MatrixEntry> entries = {{2, {.ep = 2}, 2},
                                              {2, {.tp = 2}, 2},
                                              {4, {.tp = 4, .ep = 2}, 1},
                                              {4, {.cp = 2, .ep = 4}, 2},
                                              {4, {.ep = 2, .pp = 2}, 4, "1f1b"},
                                              {4, {.tp = 2, .etp = 2}, 2, "1f1b", 3}};
    CHECK(check_matrix<RingExperts, FoldedMesh>(entries, config, [](const auto&) { return true; }) == entries.size());
  }
}
