// SPDX-License-Identifier: Apache-2.0
#pragma once
// The layouts of one model on one cluster: every dimension that a search varies, and the rules that make a layout legal.
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

enum class Kept : std::uint8_t { all, selected, inputs };  ///< activations kept for backward; recompute none, selective, full
enum class PipelineOrder : std::uint8_t {
  one_forward_one_backward,
  gpipe,
  interleaved,
  zero_bubble_h1,
  interleaved_zero_bubble,
  zbv,
  dualpipev
};

/// The options' names: "none", "selective", "full", and those of schedule::names.
std::string_view name_of(Kept kept);
std::string_view name_of(PipelineOrder order);
/// True if a rank may hold more than one stage: interleaved and interleaved-zb.
bool takes_chunks(PipelineOrder order);
/// True if weight gradients are computed separately from input gradients.
bool splits_backward(PipelineOrder order);
/// True if the first rank holds the first and the last stage.
bool is_v_shape(PipelineOrder order);

/// One layout: degrees, sharding among data-parallel ranks, and the division of a step into micro-batches and their order.
struct Candidate {
  std::int32_t dp = 1, tp = 1, cp = 1, pp = 1, ep = 1, etp = 1;
  std::int32_t chunks = 1;  ///< stages per rank
  std::int32_t micro_batch = 1, micro_batches = 1;
  std::int32_t replicate = 1;    ///< groups of data-parallel ranks that each hold one copy of the shards (hybrid sharding)
  std::int32_t loss_chunks = 1;  ///< ModelOptions::loss.chunks
  PipelineOrder order = PipelineOrder::one_forward_one_backward;
  Kept kept = Kept::all;
  std::int8_t zero = 0;
  bool sequence_parallel = false, ulysses = false;
  bool offload = false;           ///< optimizer state, and in ZeRO-3 the parameters, stay in host memory between uses
  bool host_activations = false;  ///< the blocks' activations are in host memory between forward and backward

  int ranks() const { return dp * tp * cp * pp; }
  auto key() const {
    return std::tuple(dp, tp, cp, pp, ep, etp, chunks, micro_batch, micro_batches, order, kept, zero, sequence_parallel, ulysses,
                      replicate, offload, loss_chunks, host_activations);
  }
  friend bool operator==(const Candidate& a, const Candidate& b) { return a.key() == b.key(); }
  friend bool operator<(const Candidate& a, const Candidate& b) { return a.key() < b.key(); }
};

/// "dp 8, tp 2 with sequence parallelism, zero 1, micro-batches 4 of 2": every setting that differs from 1 or none.
std::string text_of(const Candidate& layout);

/// Input of the search: the model's sizes that layouts divide, the cluster and the step.
struct Search {
  std::int64_t ranks = 1, ranks_per_node = 8;
  std::int64_t global_batch = 1;  ///< sequences per step
  std::int64_t layers = 1, width = 1, heads = 1, kv_heads = 1, sequence = 1, vocabulary = 1;
  std::int64_t columns = 1;        ///< inner width of an MLP, which tp divides; of one expert in a mixture
  std::int64_t experts = 0;        ///< per block; 0: no mixture
  bool tied = false;               ///< the first and the last stage share one table
  bool sequence_parallel = true;   ///< layouts with sequence parallelism are searched
  std::int64_t element_bytes = 2;  ///< of the hidden state
  std::int64_t loss_tokens = 0;    ///< per part, in layouts whose loss is computed in parts; 0: none of these is searched
  bool host_activations = false;   ///< layouts with activations in host memory are searched
  double memory = 0;               ///< bytes per device; 0: unlimited
};

namespace detail {

/// True if the layout takes time for memory in a way that the search tries only where memory does not suffice.
inline bool saves_memory(const Candidate& c) { return c.offload || c.loss_chunks > 1 || c.host_activations; }

}  // namespace detail

/// Calls `f` with every legal layout, in ascending order of cp. The rules are those of `mesh_layout::resolve`, and these. A tp
/// group stays in one node. cp divides a sequence into two pieces per rank. Sequence parallelism and experts divide a sequence's
/// rows evenly. A rank's stages divide its layers evenly, or the layers of its fullest rank if pp does not divide the model's.
/// ep * etp divides a stage's ranks evenly; etp is 1 or tp. Without a pipeline there is one order; with one
/// data-parallel rank there is no sharding. `replicate` is smaller than the number of data-parallel ranks and divides it, dense
/// as well as expert ranks. Offload, a loss in parts and activations in host memory require a memory limit; a layout with one of
/// them follows the same layout without. Throws UsageError for sizes below 1.
void for_each_candidate(const Search& search, const std::function<void(const Candidate&)>& f);
/// The layouts of for_each_candidate as a list.
std::vector<Candidate> candidates(const Search& search);
/// The parts of the loss of so many sequences on a rank, each of at most Search::loss_tokens tokens; 1: it is computed whole.
std::int32_t loss_chunks_of(const Search& search, const Candidate& layout, std::int64_t micro_batch);

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/candidate_impl.hpp>
#endif
