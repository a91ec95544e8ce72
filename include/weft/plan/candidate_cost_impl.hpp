// SPDX-License-Identifier: Apache-2.0
#pragma once
// The closed formulas of a layout's time and memory. Definitions for plan/candidate_cost.hpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include <weft/comm/operation.hpp>
#include <weft/core/inline.hpp>
#include <weft/mesh/stage_layers.hpp>
#include <weft/plan/candidate_cost.hpp>
#include <weft/plan/pipeline_formulas.hpp>

namespace weft::plan::detail {

inline Machine machine_of(const Search& search, Machine machine) {
  machine.ranks_per_node = int(search.ranks_per_node);
  return machine;
}

inline comm::Operation operation_of(DataMessage message) {
  using comm::Operation;
  return message == DataMessage::gather    ? Operation::all_gather
         : message == DataMessage::scatter ? Operation::reduce_scatter
                                           : Operation::all_reduce;
}

}  // namespace weft::plan::detail

namespace weft::plan {

WEFT_COLD WEFT_INLINE CandidateCosts::CandidateCosts(const Search& search, const Machine& machine, TrainPiece train)
    : search_(search), machine_(detail::machine_of(search, machine)), rehearsed_(search_, machine_, std::move(train)) {}

WEFT_COLD WEFT_INLINE CandidateCosts::HostWaits CandidateCosts::host_waits(const Candidate& c) {
  if (!c.host_activations || c.pp == 1 || !machine_.hides_messages) return {};
  Candidate stays = c;
  stays.host_activations = false;
  const detail::BlockCosts computing = rehearsed_.block(stays);
  const double copy = machine_.host_copy_s(rehearsed_.block(c).host), forward = computing.forward.layer;
  const double put =
      c.order == PipelineOrder::gpipe ? 0 : std::min(copy, forward);  // else a backward follows, which waits for it
  return {put + std::min(copy, computing.backward.layer), std::max(0.0, copy - forward)};
}

WEFT_COLD WEFT_INLINE double CandidateCosts::hidden_bytes(const Candidate& c) const {
  return double(c.micro_batch) * double(search_.sequence) / c.cp / (c.sequence_parallel ? c.tp : 1) * double(search_.width) *
         double(search_.element_bytes);
}

WEFT_COLD WEFT_INLINE CandidateCosts::TableShares CandidateCosts::table_shares(const Candidate& c) const {
  if (c.pp == 1 || search_.tied) return {1, 1};
  return is_v_shape(c.order) ? TableShares{1, 0} : TableShares{0.5, 0.5};
}

WEFT_COLD WEFT_INLINE CandidateCosts::RankLayers CandidateCosts::rank_layers(const Candidate& c) const {
  const std::size_t ranks = std::size_t(c.pp), stages = ranks * std::size_t(c.chunks);
  if (std::size_t(search_.layers) % stages == 0) {
    const double each = double(search_.layers) / c.pp;
    return {each, each, each};
  }
  const std::vector<std::size_t> counts = mesh_layout::even_layers(std::size_t(search_.layers), stages);
  std::vector<double> layers(ranks);
  for (std::size_t stage = 0; stage < stages; ++stage)
    layers[is_v_shape(c.order) ? std::min(stage, stages - 1 - stage) : stage % ranks] += double(counts[stage]);
  return {layers.front(), is_v_shape(c.order) ? layers.front() : layers.back(), *std::max_element(layers.begin(), layers.end())};
}

WEFT_COLD WEFT_INLINE double CandidateCosts::seconds(const Candidate& c) {
  const detail::BlockCosts block = rehearsed_.block(c);
  const detail::ShardCosts& shard = rehearsed_.shard(c);
  static constexpr detail::CopyCosts no_copies;
  static constexpr detail::OffloadCosts no_offload;
  const detail::CopyCosts& copies = c.replicate > 1 ? rehearsed_.copies(c) : no_copies;
  const detail::OffloadCosts& offload = c.offload ? rehearsed_.offload(c) : no_offload;
  const RankLayers rank_layers = this->rank_layers(c);
  const HostWaits host = host_waits(c);
  const double m = c.micro_batches;
  const bool alone = c.pp == 1;
  const TableShares tables = table_shares(c);
  struct Times {
    double forward, backward, once;
  };
  const std::array<int, 2> strides{c.tp * c.cp, c.ep * c.etp};
  const std::array<double, 2> data_ranks{double(c.dp), std::max(1.0, double(c.dp) * strides[0] / strides[1])};
  const double shares = c.zero > 0 ? double(c.dp) / c.replicate : 1;
  const auto here = [&](double ranks, double stride) {  // ranks per node
    return int(std::clamp(machine_.ranks_per_node / stride, 1.0, ranks));
  };
  const auto of = [&](double layers, double rests, double heads, double parameter_heads) {
    Times t{block.forward.of(layers, rests, heads), block.backward.of(layers, rests, heads) + (c.chunks - heads) * host.waits, 0};
    double sent[3][2] = {};  // seconds by phase: per micro-batch, per step
    for (std::size_t phase = 0; phase < 3; ++phase)
      for (std::size_t axis = 0; axis < 2; ++axis)
        for (std::size_t kind = 0; kind < detail::data_messages; ++kind) {
          const detail::ShardCosts::Traffic& one = shard.traffic[phase][axis][kind];
          const double bytes = one.bytes.of(layers, rests, parameter_heads),
                       calls = std::max(1.0, one.calls.of(layers, rests, parameter_heads));
          const double ranks = data_ranks[axis] / c.replicate;
          if (bytes <= 0 || ranks <= 1) continue;
          const double took = calls * machine_.collective_s(detail::operation_of(detail::DataMessage(kind)), bytes / calls,
                                                            int(ranks), here(ranks, strides[axis]));
          sent[phase][0] += one.each * took, sent[phase][1] += (1 - one.each) * took;
        }
    // Messages overlap with the computation of other layers. Those of the first or last layer overlap with nothing.
    const auto exposed = [&](double messages, double computing) {
      if (!machine_.hides_messages) return messages;
      return std::max(messages / (layers + 1), messages - computing * layers / (layers + 1));
    };
    t.once = exposed(sent[0][1], t.forward) + exposed(sent[1][1], t.backward) + sent[2][0] + sent[2][1];
    t.forward += exposed(sent[0][0], t.forward);
    t.backward += exposed(sent[1][0], t.backward);
    if (const double calls = block.context_calls.of(layers, rests, parameter_heads); c.cp > 1 && calls > 0) {
      const double bytes = block.context_bytes.of(layers, rests, parameter_heads);
      const int here = std::clamp(machine_.ranks_per_node / c.tp, 1, int(c.cp));
      const double sums = calls * machine_.collective_s(comm::Operation::all_reduce, bytes / calls, c.cp, here);
      const bool rounds = c.zero == 1 && search_.element_bytes < 4;  // sums are stored in 16 bits between micro-batches
      (c.zero >= 2 || rounds ? t.backward : t.once) += sums;
    }
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const double ranks = data_ranks[axis] / c.replicate,
                   calls = std::max(1.0, copies.calls[axis].of(layers, rests, parameter_heads)),
                   bytes = copies.bytes[axis].of(layers, rests, parameter_heads) / ranks;
      if (bytes <= 0) continue;
      t.once += calls * machine_.collective_s(comm::Operation::all_reduce, bytes / calls, c.replicate,
                                              here(c.replicate, strides[axis] * ranks));
    }
    const double updated = block.optimizer.of(layers, rests, parameter_heads) / shares;
    t.once += updated;
    if (c.offload) t.once += machine_.offload_s(offload.moved.of(layers, rests, parameter_heads) / shares, updated);
    return t;
  };
  const Times last = alone ? of(rank_layers.last, 1, 1, 1) : of(rank_layers.last, 0.5, 1, tables.last);
  const Times middle = alone ? last : of(double(search_.layers) / c.pp, 0, 0, 0);
  const Times fullest = alone ? last : of(rank_layers.most, 0, 0, 0);
  const double busy = last.forward + last.backward;
  const detail::PipelineFormulas pipeline = detail::pipeline_formulas(c, middle.forward - c.chunks * host.after, middle.backward);
  double step =
      std::max(m * busy + last.once, m * (fullest.forward + fullest.backward) + fullest.once) + (alone ? 0 : pipeline.bubble);
  const double work = m * ((c.pp - 1) * (middle.forward + middle.backward) + busy) / c.pp + last.once;
  if (!alone) {
    const double message = machine_.message_s(hidden_bytes(c), search_.ranks > search_.ranks_per_node);
    // A rank sends the next micro-batch only after the current one has returned.
    const double in_a_row = c.chunks == 1 && c.order != PipelineOrder::gpipe ? 2 * m * (c.pp - 1) / c.pp : 0;
    step += message * (2.0 * (c.pp * c.chunks - 1) + in_a_row);
  }
  return std::max(step, machine_.ranks_per_core * work);
}

WEFT_COLD WEFT_INLINE double CandidateCosts::memory(const Candidate& c) {
  const detail::BlockCosts block = rehearsed_.block(c);
  const detail::ShardCosts& shard = rehearsed_.shard(c);
  const detail::Parts gone = c.offload ? rehearsed_.offload(c).gone : detail::Parts();
  const detail::FlightCosts flight = c.pp > 1 ? rehearsed_.flight(c) : detail::FlightCosts();
  const detail::PipelineFormulas pipeline = detail::pipeline_formulas(c, 1, 2);  // the times do not change memory
  const RankLayers rank_layers = this->rank_layers(c);
  const double sharers = double(c.dp) / c.replicate, hidden = hidden_bytes(c);
  const bool alone = c.pp == 1;
  const TableShares tables = table_shares(c);
  double most = 0;
  const auto bytes = [&](double layers, double rests, double heads, const detail::Held& held, bool sends, double temporary) {
    const double stage = layers / c.chunks, shares = c.zero > 0 ? sharers : 1;
    const double kept = shard.kept.of(layers, rests, heads, sharers) - gone.of(layers, rests, heads) / shares;
    // One receive buffer, and the sent tensors that wait for an answer.
    const double buffers = alone ? 0 : (sends ? 1 + held.left : 1) * hidden;
    const double activations = stage * (held.left * block.saved + held.waiting * c.micro_batch * flight.waiting);
    // Values are back for a backward, those of a split one in `waiting`, and for the backward of the layer below.
    const double back = block.host * ((splits_backward(c.order) ? 0 : 1) + (stage > 1 ? 1 : 0));
    return back + kept + std::max(0.0, shard.temporary.of(layers, rests, heads, sharers)) + activations + temporary + buffers;
  };
  // A recomputed layer needs memory besides the others. With a split backward it is already counted in `waiting`.
  Candidate all = c;
  all.kept = Kept::all;
  const detail::BlockCosts beside = splits_backward(c.order) && c.kept != Kept::all ? rehearsed_.block(all) : block;
  const double with_head = std::max(beside.temporary, beside.temporary_head);
  const double ends = alone ? 0 : (pipeline.ends - 1) * c.micro_batch * flight.ends;
  const std::array<detail::Held, 2> one{{{1}}};
  for (const std::size_t when : {0, 1})
    most = std::max({most,
                     bytes(rank_layers.first, alone ? 1 : 0.5, tables.first, (alone ? one : pipeline.first)[when], true,
                           alone || is_v_shape(c.order) ? with_head : beside.temporary),
                     bytes(rank_layers.last, alone ? 1 : 0.5, tables.last, (alone ? one : pipeline.last)[when], c.chunks > 1,
                           with_head + ends)});
  // A rank between them has more layers than the first one, and at most as many micro-batches in flight.
  if (rank_layers.most > rank_layers.first)
    for (const std::size_t when : {0, 1})
      most = std::max(most, bytes(rank_layers.most, 0, 0, pipeline.first[when], true, beside.temporary));
  return most;
}

WEFT_COLD WEFT_INLINE double CandidateCosts::host_memory(const Candidate& c) {
  if (!c.host_activations) return 0;
  int most = 1;  // micro-batches of a stage whose backward has not begun
  if (c.pp > 1) {
    const detail::PipelineFormulas pipeline = detail::pipeline_formulas(c, 1, 2);
    for (const auto& rank : {pipeline.first, pipeline.last})
      for (const detail::Held& held : rank) most = std::max(most, held.left);
    using enum PipelineOrder;  // of a split backward, whose second part holds one more
    if (c.order == zero_bubble_h1 || c.order == zbv || c.order == interleaved_zero_bubble)
      most = std::min<int>(most + 1, c.micro_batches * c.chunks);
  }
  return rehearsed_.block(c).host * most * rank_layers(c).most / c.chunks;
}

WEFT_COLD WEFT_INLINE CandidateCost CandidateCosts::of(const Candidate& c) { return {seconds(c), memory(c)}; }

}  // namespace weft::plan
