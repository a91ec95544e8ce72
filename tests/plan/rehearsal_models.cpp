// SPDX-License-Identifier: Apache-2.0
// Rehearsals beside real ranks for what plan/rehearsal.cpp has not: other element types, sequence parallelism, attention's
// options, mixtures of experts, and gradients that are kept in fp32.

#include "plan/rehearsed.hpp"

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
// Every token goes to every expert: as even as a rehearsal assumes.
const models::MixtralConfig mixtral{.vocabulary = vocabulary,
                                    .layers = 4,
                                    .width = 64,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .sequence = sequence,
                                    .experts = 2,
                                    .top_k = 2};

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
