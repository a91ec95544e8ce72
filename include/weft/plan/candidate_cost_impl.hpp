// SPDX-License-Identifier: Apache-2.0
#pragma once
// The closed formulas of a layout's time and memory, and their rehearsals. Definitions for plan/candidate_cost.hpp.

#include <algorithm>
#include <utility>
#include <vector>

#include <weft/comm/operation.hpp>
#include <weft/core/inline.hpp>
#include <weft/mesh/stage_layers.hpp>
#include <weft/plan/candidate_cost.hpp>
#include <weft/plan/pipeline_formulas.hpp>

namespace weft::plan::detail {

inline Parts mix(const Parts& a, const Parts& b, double of_b) {
  const auto between = [of_b](double x, double y) { return x + of_b * (y - x); };
  return {between(a.layer, b.layer), between(a.rest, b.rest), between(a.head, b.head)};
}

inline BlockCosts mix(const BlockCosts& a, const BlockCosts& b, double of_b) {
  const auto between = [of_b](double x, double y) { return x + of_b * (y - x); };
  return {mix(a.forward, b.forward, of_b),
          mix(a.backward, b.backward, of_b),
          mix(a.optimizer, b.optimizer, of_b),
          a.context_bytes,
          a.context_calls,
          between(a.saved, b.saved),
          between(a.temporary, b.temporary),
          between(a.temporary_head, b.temporary_head),
          between(a.host, b.host)};
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
    : search_(search), machine_(machine), train_(std::move(train)) {
  machine_.ranks_per_node = int(search.ranks_per_node);
}

WEFT_COLD WEFT_INLINE CandidateCosts::Key CandidateCosts::block_key(const Candidate& c, int micro_batch) {
  return {
      c.tp, c.cp, c.ep, c.etp, micro_batch, int(c.kept), c.sequence_parallel, c.ulysses, c.loss_chunks > 1, c.host_activations};
}
WEFT_COLD WEFT_INLINE CandidateCosts::Key CandidateCosts::shard_key(const Candidate& c) {
  return {c.tp, c.ep, c.etp, c.sequence_parallel, c.zero};
}
WEFT_COLD WEFT_INLINE CandidateCosts::Key CandidateCosts::flight_key(const Candidate& c) {
  return {c.tp, c.cp, c.ep, c.etp, c.sequence_parallel, c.ulysses, c.loss_chunks > 1, c.host_activations};
}

/// The micro-batch sizes to rehearse for this one: itself, or the powers of two around it; capped where rows are many.
WEFT_COLD WEFT_INLINE std::array<int, 2> CandidateCosts::neighbours(const Candidate& c) const {
  constexpr std::int64_t many_rows = 8192;  // products are no faster with more rows
  int low = 1;
  while (2 * low < c.micro_batch && (low < 2 || low * search_.sequence / c.cp < many_rows)) low *= 2;
  if (low > 1 && low * search_.sequence / c.cp >= 2 * many_rows) low /= 2;
  return low == c.micro_batch ? std::array{low, low} : std::array{low, 2 * low};
}

WEFT_COLD WEFT_INLINE detail::PieceCosts CandidateCosts::read(const Candidate& c, std::int64_t layers, std::int64_t vocabulary) {
  ++rehearsals_;
  return detail::piece_costs({c, layers, vocabulary}, machine_, train_);
}

WEFT_COLD WEFT_INLINE CandidateCosts::Pieces CandidateCosts::read_all(const Candidate& c, int layers) {
  few_ = std::max<std::int64_t>(c.tp, search_.vocabulary / 8 / c.tp * c.tp);
  const detail::PieceCosts fewer = read(c, layers, few_);
  return {fewer, read(c, layers + 1, few_), few_ < search_.vocabulary ? read(c, layers, search_.vocabulary) : fewer};
}

WEFT_COLD WEFT_INLINE detail::Parts CandidateCosts::parts(double fewer, double more, double with_head, int layers) const {
  const double layer = more - fewer, entries = double(search_.vocabulary - few_);
  const double entry = entries > 0 ? (with_head - fewer) / entries : 0;
  return {layer, fewer - layers * layer - entry * double(few_), entry * double(search_.vocabulary)};
}

WEFT_COLD WEFT_INLINE const detail::BlockCosts& CandidateCosts::block_of(const Candidate& asked, int micro_batch) {
  const Key key = block_key(asked, micro_batch);
  if (const auto found = blocks_.find(key); found != blocks_.end()) return found->second;
  Candidate c = asked;
  c.pp = c.chunks = c.micro_batches = c.dp = c.replicate = 1;
  c.zero = 0, c.micro_batch = micro_batch, c.order = {}, c.offload = false;
  if (asked.loss_chunks > 1) c.loss_chunks = loss_chunks_of(search_, c, micro_batch);
  while (std::int64_t(c.dp) * c.tp * c.cp % (std::int64_t(c.ep) * c.etp) != 0) ++c.dp;
  const int layers = c.host_activations ? 2 : 1;  // one layer's values come back while the next one's backward runs
  const auto [few, more, head] = read_all(c, layers);
  detail::BlockCosts costs;
  costs.forward = parts(few.forward, more.forward, head.forward, layers);
  costs.backward = parts(few.backward, more.backward, head.backward, layers);
  costs.optimizer = parts(few.optimizer, more.optimizer, head.optimizer, layers);
  costs.context_bytes = parts(few.context_bytes, more.context_bytes, head.context_bytes, layers);
  costs.context_calls = parts(few.context_calls, more.context_calls, head.context_calls, layers);
  costs.saved = more.peak - more.kept - (few.peak - few.kept);
  costs.temporary = few.peak - few.kept - layers * costs.saved;
  costs.temporary_head = head.peak - head.kept - layers * costs.saved;
  if (c.host_activations) {
    costs.host = (more.activations - few.activations) / 2;
    costs.temporary -= layers * costs.host, costs.temporary_head -= layers * costs.host;  // both layers' values are back
  }
  return blocks_.emplace(key, costs).first->second;
}

WEFT_COLD WEFT_INLINE detail::BlockCosts CandidateCosts::block(const Candidate& c) {
  const std::array<int, 2> around = neighbours(c);
  const detail::BlockCosts& low = block_of(c, around[0]);
  if (around[0] == around[1]) return low;
  return mix(low, block_of(c, around[1]), double(c.micro_batch - around[0]) / double(around[1] - around[0]));
}

/// The difference between pieces with and without one more micro-batch on the last rank.
WEFT_COLD WEFT_INLINE const detail::FlightCosts& CandidateCosts::flight(const Candidate& asked) {
  const Key key = flight_key(asked);
  if (const auto found = flights_.find(key); found != flights_.end()) return found->second;
  Candidate c = asked;
  c.chunks = c.micro_batch = c.replicate = c.dp = 1;
  c.zero = 0, c.kept = Kept::all, c.offload = false;
  if (asked.loss_chunks > 1) c.loss_chunks = std::max(2, loss_chunks_of(search_, c, 1));  // so that no logits are kept
  while (std::int64_t(c.dp) * c.tp * c.cp % (std::int64_t(c.ep) * c.etp) != 0) ++c.dp;
  const auto peak = [&](PipelineOrder order, int stages, int micro_batches) {
    ++rehearsals_;
    c.order = order, c.pp = stages, c.micro_batches = micro_batches;
    return detail::piece_peak({c, stages, search_.vocabulary}, train_);  // one layer a stage
  };
  const double left = peak(PipelineOrder::gpipe, 2, 3) - peak(PipelineOrder::gpipe, 2, 2);
  const double waiting = peak(PipelineOrder::zero_bubble_h1, 3, 3) - peak(PipelineOrder::zero_bubble_h1, 2, 2);
  detail::FlightCosts costs;
  costs.ends = std::max(0.0, left - block_of(c, 1).saved);
  costs.waiting = std::max(0.0, waiting - costs.ends);
  return flights_.emplace(key, costs).first->second;
}

WEFT_COLD WEFT_INLINE bool CandidateCosts::knows(const Candidate& c) const {
  for (const int micro_batch : neighbours(c))
    if (!blocks_.contains(block_key(c, micro_batch))) return false;
  const Key key = shard_key(c);
  if (c.pp > 1 && !flights_.contains(flight_key(c))) return false;
  return shards_.contains(key) && (c.replicate == 1 || copies_.contains(key)) && (!c.offload || offloads_.contains(key));
}

WEFT_COLD WEFT_INLINE Candidate CandidateCosts::shard_piece(const Candidate& asked) {
  Candidate c = asked;
  c.pp = c.chunks = c.cp = c.micro_batch = c.dp = c.replicate = c.loss_chunks = 1;
  c.micro_batches = 2, c.kept = Kept::all, c.order = {}, c.ulysses = c.offload = c.host_activations = false;
  while (std::int64_t(c.dp) * c.tp % (std::int64_t(c.ep) * c.etp) != 0) ++c.dp;
  return c;
}

WEFT_COLD WEFT_INLINE const detail::ShardCosts& CandidateCosts::shard(const Candidate& asked) {
  const Key key = shard_key(asked);
  if (const auto found = shards_.find(key); found != shards_.end()) return found->second;
  Candidate c = shard_piece(asked), plain = c;
  plain.zero = 0;
  const int less = few_sharers * c.dp, more = many_sharers * c.dp;
  detail::ShardCosts costs;
  plain.dp = c.dp = more;
  const Pieces far = read_all(c, gathered_layers), without = read_all(plain, gathered_layers);
  c.dp = less;
  const Pieces near = read_all(c, gathered_layers);
  const auto fit = [&](const auto& bytes) {  // bytes(x) = whole + cut / x
    const detail::Parts at_far = parts_of(far, bytes), at_near = parts_of(near, bytes);
    const detail::Parts cut = at_near.less(at_far).times(1 / (1.0 / less - 1.0 / more));
    return detail::Shares{at_far.less(cut.times(1.0 / more)), cut};
  };
  const auto beside = [](const detail::PieceCosts& r) { return r.peak - r.kept; };
  costs.kept = fit([](const detail::PieceCosts& r) { return r.kept; });
  costs.temporary = fit(beside);
  costs.temporary.whole = costs.temporary.whole.less(parts_of(without, beside));
  c.dp = more, c.micro_batches = 1;
  const detail::PieceCosts once = read(c, gathered_layers, few_);
  for (std::size_t phase = 0; phase < 3; ++phase)
    for (std::size_t axis = 0; axis < 2; ++axis)
      for (std::size_t kind = 0; kind < detail::data_messages; ++kind) {
        const auto of = [&](std::size_t what) {
          return parts_of(far, [&](const detail::PieceCosts& r) { return r.messages[phase][axis][kind][what]; });
        };
        const double first = once.messages[phase][axis][kind][0], both = far[0].messages[phase][axis][kind][0];
        const double each = first > 0 ? std::clamp(both / first - 1, 0.0, 1.0) : 0;
        costs.traffic[phase][axis][kind] = {of(0).times(1 / (1 + each)), of(1).times(1 / (1 + each)), each};
      }
  return shards_.emplace(key, costs).first->second;
}

WEFT_COLD WEFT_INLINE const detail::CopyCosts& CandidateCosts::copies(const Candidate& asked) {
  const Key key = shard_key(asked);
  if (const auto found = copies_.find(key); found != copies_.end()) return found->second;
  Candidate c = shard_piece(asked);
  c.replicate = 2, c.dp *= many_sharers;
  const double expert_sharers = double(c.dp) * c.tp / (double(c.ep) * c.etp) / c.replicate;
  const Pieces pieces = read_all(c, gathered_layers);
  detail::CopyCosts costs;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const auto sum = [&](std::size_t what) {
      return parts_of(pieces, [&](const detail::PieceCosts& r) {
        double all = 0;
        for (const auto& phase : r.messages) all += phase[axis][std::size_t(detail::DataMessage::sum_of_copies)][what];
        return all;
      });
    };
    costs.bytes[axis] = sum(0).times(axis == 0 ? double(c.dp) / c.replicate : expert_sharers);
    costs.calls[axis] = sum(1);
  }
  return copies_.emplace(key, costs).first->second;
}

WEFT_COLD WEFT_INLINE const detail::OffloadCosts& CandidateCosts::offload(const Candidate& asked) {
  const Key key = shard_key(asked);
  if (const auto found = offloads_.find(key); found != offloads_.end()) return found->second;
  const detail::ShardCosts& shard = this->shard(asked);
  Candidate c = shard_piece(asked);
  c.offload = true, c.dp *= many_sharers;
  const double sharers = c.zero > 0 ? c.dp : 1;
  const Pieces pieces = read_all(c, gathered_layers);
  const detail::Parts kept = parts_of(pieces, [](const detail::PieceCosts& r) { return r.kept; });
  const detail::Parts moved = parts_of(pieces, [](const detail::PieceCosts& r) { return r.offloaded; });
  const detail::Parts gone = shard.kept.whole.less(kept).less(shard.kept.cut.times(-1.0 / c.dp));
  return offloads_.emplace(key, detail::OffloadCosts{gone.times(sharers), moved.times(sharers)}).first->second;
}

WEFT_COLD WEFT_INLINE CandidateCosts::HostWaits CandidateCosts::host_waits(const Candidate& c) {
  if (!c.host_activations || c.pp == 1 || !machine_.hides_messages) return {};
  Candidate stays = c;
  stays.host_activations = false;
  const detail::BlockCosts computing = block(stays);
  const double copy = machine_.host_copy_s(block(c).host), forward = computing.forward.layer;
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
  const detail::BlockCosts block = this->block(c);
  const detail::ShardCosts& shard = this->shard(c);
  static constexpr detail::CopyCosts no_copies;
  static constexpr detail::OffloadCosts no_offload;
  const detail::CopyCosts& copies = c.replicate > 1 ? this->copies(c) : no_copies;
  const detail::OffloadCosts& offload = c.offload ? this->offload(c) : no_offload;
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
  const detail::BlockCosts block = this->block(c);
  const detail::ShardCosts& shard = this->shard(c);
  const detail::Parts gone = c.offload ? this->offload(c).gone : detail::Parts();
  const detail::FlightCosts flight = c.pp > 1 ? this->flight(c) : detail::FlightCosts();
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
  const detail::BlockCosts beside = splits_backward(c.order) && c.kept != Kept::all ? this->block(all) : block;
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
  return block(c).host * most * rank_layers(c).most / c.chunks;
}

WEFT_COLD WEFT_INLINE CandidateCost CandidateCosts::of(const Candidate& c) { return {seconds(c), memory(c)}; }

}  // namespace weft::plan
