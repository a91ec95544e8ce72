// SPDX-License-Identifier: Apache-2.0
// The matrix of layouts on thread ranks, dense models: equal to one rank in loss, gradient norm, every gradient, validation loss
// and logits, in double to 1e-12.

#include "support/matrix.hpp"

using namespace weft_test;

namespace {
const auto all = [](const MatrixEntry&) { return true; };
}

TEST_CASE("gpt: dp or ZeRO, tp, cp by a ring, pp") { CHECK(check_matrix<DenseRing, DenseMesh>(dense_ring, gpt_config(), all) >= 39); }
TEST_CASE("llama: dp or ZeRO, sequence parallelism, cp by Ulysses, pp") { CHECK(check_matrix<DenseUlysses, DenseMesh>(dense_ulysses, llama_config(), all) >= 8); }

TEST_CASE("gpt: dp x tp x pp under every schedule in every stage of ZeRO") {
  std::vector<MatrixEntry> entries;
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zbv", "dualpipev"})
    for (int zero = 0; zero < 4; ++zero) entries.push_back({8, {.tp = 2, .pp = 2}, 4, schedule, zero});
  CHECK(check_matrix<DenseRing, DenseMesh>(entries, gpt_config(), all) == 28);
}
