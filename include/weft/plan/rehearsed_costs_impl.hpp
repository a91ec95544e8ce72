// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rehearsals of pieces, and their differences. Definitions for plan/rehearsed_costs.hpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/plan/rehearsed_costs.hpp>

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

WEFT_COLD WEFT_INLINE RehearsedCosts::Key RehearsedCosts::block_key(const Candidate& c, int micro_batch) {
  return {
      c.tp, c.cp, c.ep, c.etp, micro_batch, int(c.kept), c.sequence_parallel, c.ulysses, c.loss_chunks > 1, c.host_activations};
}
WEFT_COLD WEFT_INLINE RehearsedCosts::Key RehearsedCosts::shard_key(const Candidate& c) {
  return {c.tp, c.ep, c.etp, c.sequence_parallel, c.zero};
}
WEFT_COLD WEFT_INLINE RehearsedCosts::Key RehearsedCosts::flight_key(const Candidate& c) {
  return {c.tp, c.cp, c.ep, c.etp, c.sequence_parallel, c.ulysses, c.loss_chunks > 1, c.host_activations};
}

/// The micro-batch sizes to rehearse for this one: itself, or the powers of two around it; capped where rows are many.
WEFT_COLD WEFT_INLINE std::array<int, 2> RehearsedCosts::neighbours(const Candidate& c) const {
  constexpr std::int64_t many_rows = 8192;  // products are no faster with more rows
  int low = 1;
  while (2 * low < c.micro_batch && (low < 2 || low * search_.sequence / c.cp < many_rows)) low *= 2;
  if (low > 1 && low * search_.sequence / c.cp >= 2 * many_rows) low /= 2;
  return low == c.micro_batch ? std::array{low, low} : std::array{low, 2 * low};
}

WEFT_COLD WEFT_INLINE PieceCosts RehearsedCosts::read(const Candidate& c, std::int64_t layers, std::int64_t vocabulary) {
  ++count_;
  return piece_costs({c, layers, vocabulary}, machine_, train_);
}

WEFT_COLD WEFT_INLINE RehearsedCosts::Pieces RehearsedCosts::read_all(const Candidate& c, int layers) {
  few_ = std::max<std::int64_t>(c.tp, search_.vocabulary / 8 / c.tp * c.tp);
  const PieceCosts fewer = read(c, layers, few_);
  return {fewer, read(c, layers + 1, few_), few_ < search_.vocabulary ? read(c, layers, search_.vocabulary) : fewer};
}

WEFT_COLD WEFT_INLINE Parts RehearsedCosts::parts(double fewer, double more, double with_head, int layers) const {
  const double layer = more - fewer, entries = double(search_.vocabulary - few_);
  const double entry = entries > 0 ? (with_head - fewer) / entries : 0;
  return {layer, fewer - layers * layer - entry * double(few_), entry * double(search_.vocabulary)};
}

WEFT_COLD WEFT_INLINE const BlockCosts& RehearsedCosts::block_of(const Candidate& asked, int micro_batch) {
  const Key key = block_key(asked, micro_batch);
  if (const auto found = blocks_.find(key); found != blocks_.end()) return found->second;
  Candidate c = asked;
  c.pp = c.chunks = c.micro_batches = c.dp = c.replicate = 1;
  c.zero = 0, c.micro_batch = micro_batch, c.order = {}, c.offload = false;
  if (asked.loss_chunks > 1) c.loss_chunks = loss_chunks_of(search_, c, micro_batch);
  while (std::int64_t(c.dp) * c.tp * c.cp % (std::int64_t(c.ep) * c.etp) != 0) ++c.dp;
  const int layers = c.host_activations ? 2 : 1;  // one layer's values come back while the next one's backward runs
  const auto [few, more, head] = read_all(c, layers);
  BlockCosts costs;
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

WEFT_COLD WEFT_INLINE BlockCosts RehearsedCosts::block(const Candidate& c) {
  const std::array<int, 2> around = neighbours(c);
  const BlockCosts& low = block_of(c, around[0]);
  if (around[0] == around[1]) return low;
  return mix(low, block_of(c, around[1]), double(c.micro_batch - around[0]) / double(around[1] - around[0]));
}

/// The difference between pieces with and without one more micro-batch on the last rank.
WEFT_COLD WEFT_INLINE const FlightCosts& RehearsedCosts::flight(const Candidate& asked) {
  const Key key = flight_key(asked);
  if (const auto found = flights_.find(key); found != flights_.end()) return found->second;
  Candidate c = asked;
  c.chunks = c.micro_batch = c.replicate = c.dp = 1;
  c.zero = 0, c.kept = Kept::all, c.offload = false;
  if (asked.loss_chunks > 1) c.loss_chunks = std::max(2, loss_chunks_of(search_, c, 1));  // so that no logits are kept
  while (std::int64_t(c.dp) * c.tp * c.cp % (std::int64_t(c.ep) * c.etp) != 0) ++c.dp;
  const auto peak = [&](PipelineOrder order, int stages, int micro_batches) {
    ++count_;
    c.order = order, c.pp = stages, c.micro_batches = micro_batches;
    return piece_peak({c, stages, search_.vocabulary}, train_);  // one layer a stage
  };
  const double left = peak(PipelineOrder::gpipe, 2, 3) - peak(PipelineOrder::gpipe, 2, 2);
  const double waiting = peak(PipelineOrder::zero_bubble_h1, 3, 3) - peak(PipelineOrder::zero_bubble_h1, 2, 2);
  FlightCosts costs;
  costs.ends = std::max(0.0, left - block_of(c, 1).saved);
  costs.waiting = std::max(0.0, waiting - costs.ends);
  return flights_.emplace(key, costs).first->second;
}

WEFT_COLD WEFT_INLINE bool RehearsedCosts::knows(const Candidate& c) const {
  for (const int micro_batch : neighbours(c))
    if (!blocks_.contains(block_key(c, micro_batch))) return false;
  const Key key = shard_key(c);
  if (c.pp > 1 && !flights_.contains(flight_key(c))) return false;
  return shards_.contains(key) && (c.replicate == 1 || copies_.contains(key)) && (!c.offload || offloads_.contains(key));
}

WEFT_COLD WEFT_INLINE Candidate RehearsedCosts::shard_piece(const Candidate& asked) {
  Candidate c = asked;
  c.pp = c.chunks = c.cp = c.micro_batch = c.dp = c.replicate = c.loss_chunks = 1;
  c.micro_batches = 2, c.kept = Kept::all, c.order = {}, c.ulysses = c.offload = c.host_activations = false;
  while (std::int64_t(c.dp) * c.tp % (std::int64_t(c.ep) * c.etp) != 0) ++c.dp;
  return c;
}

WEFT_COLD WEFT_INLINE const ShardCosts& RehearsedCosts::shard(const Candidate& asked) {
  const Key key = shard_key(asked);
  if (const auto found = shards_.find(key); found != shards_.end()) return found->second;
  Candidate c = shard_piece(asked), plain = c;
  plain.zero = 0;
  const int less = few_sharers * c.dp, more = many_sharers * c.dp;
  ShardCosts costs;
  plain.dp = c.dp = more;
  const Pieces far = read_all(c, gathered_layers), without = read_all(plain, gathered_layers);
  c.dp = less;
  const Pieces near = read_all(c, gathered_layers);
  const auto fit = [&](const auto& bytes) {  // bytes(x) = whole + cut / x
    const Parts at_far = parts_of(far, bytes), at_near = parts_of(near, bytes);
    const Parts cut = at_near.less(at_far).times(1 / (1.0 / less - 1.0 / more));
    return Shares{at_far.less(cut.times(1.0 / more)), cut};
  };
  const auto beside = [](const PieceCosts& r) { return r.peak - r.kept; };
  costs.kept = fit([](const PieceCosts& r) { return r.kept; });
  costs.temporary = fit(beside);
  costs.temporary.whole = costs.temporary.whole.less(parts_of(without, beside));
  c.dp = more, c.micro_batches = 1;
  const PieceCosts once = read(c, gathered_layers, few_);
  for (std::size_t phase = 0; phase < 3; ++phase)
    for (std::size_t axis = 0; axis < 2; ++axis)
      for (std::size_t kind = 0; kind < data_messages; ++kind) {
        const auto of = [&](std::size_t what) {
          return parts_of(far, [&](const PieceCosts& r) { return r.messages[phase][axis][kind][what]; });
        };
        const double first = once.messages[phase][axis][kind][0], both = far[0].messages[phase][axis][kind][0];
        const double each = first > 0 ? std::clamp(both / first - 1, 0.0, 1.0) : 0;
        costs.traffic[phase][axis][kind] = {of(0).times(1 / (1 + each)), of(1).times(1 / (1 + each)), each};
      }
  return shards_.emplace(key, costs).first->second;
}

WEFT_COLD WEFT_INLINE const CopyCosts& RehearsedCosts::copies(const Candidate& asked) {
  const Key key = shard_key(asked);
  if (const auto found = copies_.find(key); found != copies_.end()) return found->second;
  Candidate c = shard_piece(asked);
  c.replicate = 2, c.dp *= many_sharers;
  const double expert_sharers = double(c.dp) * c.tp / (double(c.ep) * c.etp) / c.replicate;
  const Pieces pieces = read_all(c, gathered_layers);
  CopyCosts costs;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const auto sum = [&](std::size_t what) {
      return parts_of(pieces, [&](const PieceCosts& r) {
        double all = 0;
        for (const auto& phase : r.messages) all += phase[axis][std::size_t(DataMessage::sum_of_copies)][what];
        return all;
      });
    };
    costs.bytes[axis] = sum(0).times(axis == 0 ? double(c.dp) / c.replicate : expert_sharers);
    costs.calls[axis] = sum(1);
  }
  return copies_.emplace(key, costs).first->second;
}

WEFT_COLD WEFT_INLINE const OffloadCosts& RehearsedCosts::offload(const Candidate& asked) {
  const Key key = shard_key(asked);
  if (const auto found = offloads_.find(key); found != offloads_.end()) return found->second;
  const ShardCosts& shard = this->shard(asked);
  Candidate c = shard_piece(asked);
  c.offload = true, c.dp *= many_sharers;
  const double sharers = c.zero > 0 ? c.dp : 1;
  const Pieces pieces = read_all(c, gathered_layers);
  const Parts kept = parts_of(pieces, [](const PieceCosts& r) { return r.kept; });
  const Parts moved = parts_of(pieces, [](const PieceCosts& r) { return r.offloaded; });
  const Parts gone = shard.kept.whole.less(kept).less(shard.kept.cut.times(-1.0 / c.dp));
  return offloads_.emplace(key, OffloadCosts{gone.times(sharers), moved.times(sharers)}).first->second;
}

}  // namespace weft::plan::detail
