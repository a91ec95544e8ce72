// SPDX-License-Identifier: Apache-2.0
#pragma once
// Layouts of one model on one cluster: everything that a search chooses among, and which of them are legal.
//
//   Search search{.ranks = 16, .global_batch = 64, .layers = 32, .heads = 32};
//   for (const Candidate& layout : candidates(search)) ...

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <weft/core/inline.hpp>

namespace weft::plan {

enum class Kept : std::uint8_t { all, selected, inputs };  ///< what forward keeps for backward: recompute none, selective, full
enum class PipelineOrder : std::uint8_t {
  one_forward_one_backward,
  gpipe,
  interleaved,
  zero_bubble_h1,
  interleaved_zero_bubble,
  zbv,
  dualpipev
};

/// The names of the options: "none", "selective", "full", and those of schedule::names.
std::string_view name_of(Kept kept);
std::string_view name_of(PipelineOrder order);
/// Whether a rank may have any number of stages: interleaved and interleaved-zb.
bool takes_chunks(PipelineOrder order);
/// Whether the gradients of weights are computed apart from those of inputs.
bool splits_backward(PipelineOrder order);
/// Whether the first rank has the first and the last stage.
bool is_v_shape(PipelineOrder order);

/// One layout: degrees, what data ranks share out, how a step is cut into micro-batches and in which order they run.
struct Candidate {
  std::int32_t dp = 1, tp = 1, cp = 1, pp = 1, ep = 1, etp = 1;
  std::int32_t chunks = 1;  ///< stages of a rank
  std::int32_t micro_batch = 1, micro_batches = 1;
  std::int32_t replicate = 1;  ///< groups of data ranks that share out among themselves (hybrid sharding)
  PipelineOrder order = PipelineOrder::one_forward_one_backward;
  Kept kept = Kept::all;
  std::int8_t zero = 0;
  bool sequence_parallel = false, ulysses = false;
  bool offload = false;  ///< the optimizer's state, of stage 3 the parameters too, lies in the host's memory between uses

  int ranks() const { return dp * tp * cp * pp; }
  auto key() const {
    return std::tuple(dp, tp, cp, pp, ep, etp, chunks, micro_batch, micro_batches, order, kept, zero, sequence_parallel, ulysses,
                      replicate, offload);
  }
  friend bool operator==(const Candidate& a, const Candidate& b) { return a.key() == b.key(); }
  friend bool operator<(const Candidate& a, const Candidate& b) { return a.key() < b.key(); }
};

/// "dp 8, tp 2 with sequence parallelism, zero 1, micro-batches 4 of 2": what is not 1 or none.
std::string text_of(const Candidate& layout);

/// What is asked: sizes of a model as far as layouts cut them, a cluster and a step.
struct Search {
  std::int64_t ranks = 1, ranks_per_node = 8;
  std::int64_t global_batch = 1;  ///< sequences of a step
  std::int64_t layers = 1, width = 1, heads = 1, kv_heads = 1, sequence = 1, vocabulary = 1;
  std::int64_t columns = 1;        ///< inside of an MLP that tp cuts; an expert's, if there are experts
  std::int64_t experts = 0;        ///< of a block; 0: no mixture
  bool tied = false;               ///< both ends of the model share one table
  bool sequence_parallel = true;   ///< a composition is compiled for it
  std::int64_t element_bytes = 2;  ///< of the hidden state
  double memory = 0;               ///< bytes of a device; 0: enough
};

/// Calls `f` with every legal layout, by cp from the smallest on. The rules are those of `mesh_layout::resolve` and: a tp group
/// is in one node; cp cuts a sequence into two pieces for each rank; sequence parallelism and experts cut a sequence's rows
/// evenly; ep and etp fill whole ranks of a stage, etp is 1 or tp; without a pipeline there is one order, without data ranks
/// nothing to share out. Copies of what is shared out are fewer than data ranks, and divide them and those of experts. Offload is
/// for devices whose memory has an end; a layout with it comes after the same without. Throws UsageError for sizes below 1.
void for_each_candidate(const Search& search, const std::function<void(const Candidate&)>& f);
std::vector<Candidate> candidates(const Search& search);

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/candidate_impl.hpp>
#endif
