// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory that a rank needs, known before anything runs: from ZeRO's formulas for a number of parameters, or from a simulated
// training step for a model and a layout. Needs neither Kokkos nor MPI.
//
//   plan::Bytes bytes = plan::zero_memory(7.5e9, 64, 3);                           // 1.88 GB
//   for (const plan::StageMemory& rank : plan::memory(model, layout, table)) ...   // plan/step_simulation.hpp

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <weft/core/error.hpp>

namespace weft::plan {

/// Bytes of a rank, by purpose.
struct Bytes {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;    ///< AdamW's two moments, and the master copy of 16-bit parameters
  double activations = 0;  ///< the most that is kept between two actions of the schedule
  double buffers = 0;      ///< temporary memory beyond that: temporaries, gathered parameters, gradients in transit

  double total() const { return parameters + gradients + optimizer + activations + buffers; }
  double kept() const { return parameters + gradients + optimizer; }  ///< between two steps
};

/// Bytes of one element of each kind.
struct ElementBytes {
  double value = 2, gradient = 2, optimizer = 12;
};

/// The bytes for "fp32", "bf16", "fp16" or "fp64", with AdamW. 16-bit types count as mixed precision in the literature does, and
/// as every stage of FullyShardedDataParallel adds up: 2 + 2 + 12. Throws UsageError for other names.
inline ElementBytes element_bytes(std::string_view precision) {
  if (precision == "fp32") return {4, 4, 8};
  if (precision == "fp64") return {8, 8, 16};
  if (precision == "bf16" || precision == "fp16") return {2, 2, 12};
  throw_error<UsageError>({"precision '", precision, "': it can be fp32, bf16, fp16 or fp64"});
}

/// The bytes of `parameters` elements on each of `ranks` data ranks under a stage of ZeRO (0: plain data parallelism), without
/// activations (Rajbhandari et al., arXiv:1910.02054, figure 1).
inline Bytes zero_memory(double parameters, double ranks, int stage, const ElementBytes& bytes = {}) {
  const auto cut = [&](int from) { return stage >= from ? parameters / ranks : parameters; };
  return {bytes.value * cut(3), bytes.gradient * cut(2), bytes.optimizer * cut(1), 0, 0};
}

enum class Architecture { gpt, llama, mixtral };

/// The sizes of a model.
struct ModelSizes {
  Architecture architecture = Architecture::gpt;
  std::size_t layers = 6, width = 384, heads = 6;
  std::size_t kv_heads = 0;      ///< 0: as many as heads
  std::size_t intermediate = 0;  ///< of the MLP (llama) or an expert (mixtral); 0: the model's own rule
  std::size_t sequence = 256, vocabulary = 256;
  std::size_t experts = 8, top_k = 2;
  // llama, mixtral: models::AttentionOptions
  std::size_t head_width = 0;  ///< 0: width / heads
  bool query_key_value_bias = false, output_bias = false, query_key_norm = false;
  bool tied = false;     ///< llama, mixtral: the last projection shares the embedding's table (GPT-2's always does)
  bool dropout = false;  ///< keeps no masks, but copies
};

enum class Recompute { none, selective, full };

/// The layout and the options of a training step.
struct StepLayout {
  std::size_t dp = 1, tp = 1, pp = 1, cp = 1;
  bool ulysses = false;                  ///< cp by Ulysses instead of a ring
  std::size_t ep = 1, etp = 1, edp = 1;  ///< of mixtral's experts
  std::string schedule = "1f1b";
  std::size_t chunks = 0;                          ///< stages a rank; 0: the schedule's own
  std::size_t micro_batches = 1, micro_batch = 1;  ///< of a step and rank; sequences in each
  int zero = 0;
  std::size_t replicate = 1;  ///< groups of data ranks that shard only among themselves (hybrid sharding)
  bool sharded = false;       ///< FullyShardedDataParallel; false only with zero 0
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  std::string precision = "fp32";
  /// Sums of gradients of 16-bit models stay in fp32 in stages 1 and 2 too (ModelOptions::numerics.gradient).
  bool float_gradients = false;
  bool reproducible = false;      ///< ModelOptions::numerics.reproducible
  bool offload = false;           ///< optimizer state, and in stage 3 parameters, are on the device only while in use
  bool quantised_gather = false;  ///< stage 3: gathers in 8-bit integers
  std::size_t secondary = 0;      ///< stage 3: the number of neighbours that keep gathered values
  std::size_t threads = 1;        ///< of a rank: attention has a workspace for each
};

/// The memory of one rank of the pipeline.
struct StageMemory {
  std::vector<int> stages;   ///< the stages that it holds
  std::size_t elements = 0;  ///< parameters of its stages; tp and dp may divide them
  Bytes bytes;
};

}  // namespace weft::plan
