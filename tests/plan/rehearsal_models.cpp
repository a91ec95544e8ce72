// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/learn_shapes.hpp weft/pipeline/model_aside.hpp weft/pipeline/stage_shapes.hpp
// Rehearsals compared with real ranks for features outside plan/rehearsal.cpp: other element types, sequence parallelism,
// attention's options, mixtures of experts, and gradients in fp32.

#include <weft/pipeline/learn_shapes.hpp>
#include <weft/pipeline/model_aside.hpp>
#include <weft/pipeline/stage_shapes.hpp>

#include "plan/rehearsed.hpp"

#include <array>
#include <cmath>
#include <set>

using namespace weft_test;

namespace {

template <class Model, class Stream = Invariant<tp>>
using Parallel = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>, Stream>>>;
template <class Model, class Stream = Invariant<tp>>
using WithExperts = FullyShardedDataParallel<ContextParallel<TensorParallel<ExpertParallel<PipelineParallel<Model>>, Stream>>>;
using Rows = Shard<tp, 0>;

const models::GptConfig gpt{.vocabulary = vocabulary, .layers = 4, .width = 64, .heads = 4, .sequence = sequence};
const models::LlamaConfig llama{.vocabulary = vocabulary,
                                .layers = 4,
                                .width = 64,
                                .heads = 4,
                                .kv_heads = 2,
                                .sequence = sequence,
                                .attention = {.head_width = 48, .bias = models::AttentionBias::all, .query_key_norm = true}};

}  // namespace

TEST_CASE("gpt in double") {
  for (const Case& c : {Case{}, Case{.dp = 2, .zero = 1, .micro_batches = 2}, Case{.dp = 2, .zero = 3, .micro_batch = 4}})
    check<Parallel<models::BasicGpt<double>>>(gpt, c);
}
TEST_CASE("gpt in bfloat16 under sequence parallelism") {
  for (const Case& c : {Case{.tp = 2, .micro_batches = 2}, Case{.dp = 2, .tp = 2, .zero = 2, .micro_batches = 2},
                        Case{.dp = 2, .zero = 1, .micro_batches = 2, .float_gradients = true},
                        Case{.dp = 2, .zero = 2, .micro_batch = 4, .float_gradients = true},
                        Case{.dp = 2, .zero = 3, .micro_batch = 4, .secondary = 2, .quantised = true},
                        Case{.dp = 4, .zero = 2, .micro_batches = 2, .replicate = 2, .reproducible = true},
                        Case{.dp = 2, .zero = 3, .micro_batch = 4, .offload = true}, Case{.tp = 2, .cp = 2, .ulysses = true},
                        Case{.tp = 2, .pp = 2, .schedule = "zb-h1", .micro_batches = 4},
                        Case{.tp = 2, .pp = 2, .micro_batches = 4, .recompute = Recomputation::full}})
    check<Parallel<models::BasicGpt<bfloat16>, Rows>>(gpt, c);
}
TEST_CASE("llama with biases, norms of queries and keys and wider heads, in bfloat16") {
  for (const Case& c : {Case{}, Case{.dp = 2, .zero = 3, .micro_batch = 4}, Case{.tp = 2, .micro_batches = 2}, Case{.cp = 2},
                        Case{.pp = 2, .schedule = "zb-h1", .micro_batches = 4}, Case{.recompute = Recomputation::selective}})
    check<Parallel<models::BasicLlama<bfloat16>>>(llama, c);
}
TEST_CASE("mixtral in bfloat16, and in float under sequence parallelism") {
  for (const Case& c : {Case{}, Case{.dp = 2, .ep = 2}, Case{.tp = 2, .ep = 2, .micro_batches = 2}, Case{.tp = 2, .etp = 2},
                        Case{.dp = 2, .tp = 2, .ep = 2, .etp = 2}, Case{.dp = 2, .pp = 2, .ep = 2, .micro_batches = 4},
                        Case{.dp = 2, .ep = 2, .zero = 3, .micro_batch = 4}, Case{.dp = 4, .ep = 2, .zero = 1},
                        Case{.cp = 2, .ep = 2}, Case{.dp = 2, .ep = 2, .micro_batches = 3, .reproducible = true},
                        Case{.dp = 2, .ep = 2, .recompute = Recomputation::full}}) {
    check<WithExperts<models::BasicMixtral<bfloat16>>>(mixtral, c);
    check<WithExperts<models::BasicMixtral<float>, Rows>>(mixtral, c);
  }
}

// A router of zeros gives all experts the same score, and among equal scores the lowest index is chosen: expert 0, for every
// token. With one choice per token its weight is 1 for every score, so the router does not change.
TEST_CASE("mixtral whose tokens all choose one expert") {
  models::MixtralConfig one = mixtral;
  one.experts = 4, one.top_k = 1, one.standard_deviation = 0;
  for (const Case& c : {Case{}, Case{.dp = 2, .ep = 2}, Case{.dp = 2, .tp = 2, .ep = 4}})
    check<WithExperts<models::BasicMixtral<float>>>(one, c, 4);
}
TEST_CASE("experts are chosen evenly, or the first by a share of the rows") {
  for (const auto& [rows, experts, k] :
       {std::array<std::size_t, 3>{12, 4, 2}, {30, 8, 2}, {7, 2, 2}, {9, 3, 1}, {5, 1, 1}, {64, 10, 7}})
    for (const double skew : {1.0, 1.5, 2.0, 100.0}) {
      INFO(rows << " rows, " << k << " of " << experts << " experts, skew " << skew);
      std::vector<std::int32_t> chosen(rows * k, -1);
      weft::detail::rehearse_choice(chosen, experts, k, skew);
      std::vector<std::size_t> load(experts);
      for (std::size_t row = 0; row < rows; ++row) {
        const auto first = chosen.begin() + std::ptrdiff_t(row * k);
        CHECK(std::set<std::int32_t>(first, first + std::ptrdiff_t(k)).size() == k);  // each expert once
        for (auto one = first; one != first + std::ptrdiff_t(k); ++one) ++load.at(std::size_t(*one));
      }
      const double busiest = std::min(double(rows), skew * double(rows * k) / double(experts));
      CHECK(std::abs(double(load[0]) - busiest) < 1);
      for (std::size_t other = 2; other < experts; ++other) CHECK((load[other] <= load[1] && load[other] + 1 >= load[1]));
    }
}
