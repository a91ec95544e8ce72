// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for plan/candidate_cost.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <weft/comm/operation.hpp>
#include <weft/core/inline.hpp>
#include <weft/plan/candidate_cost.hpp>
#include <weft/plan/estimate.hpp>
#include <weft/plan/pipeline_formulas.hpp>
#include <weft/plan/replay.hpp>
#include <weft/runtime/rehearse.hpp>

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
          between(a.temporary_head, b.temporary_head)};
}

/// 0: data ranks, 1: those of experts; -1: others.
inline int data_axis(std::string_view axis) { return axis == "edp" ? 1 : axis.find("dp") != axis.npos ? 0 : -1; }

/// Sums of gradients over cp, which are made once a step unless gradients are shared out in each micro-batch.
inline bool sums_over_context(const RehearsedTrace::Event& e, std::string_view axis) {
  return axis == "cp" && comm::Operation(e.a) == comm::Operation::all_reduce &&
         (e.kind == RehearsedTrace::Kind::call || e.kind == RehearsedTrace::Kind::start);
}

inline int kind_of(comm::Operation operation) {
  using comm::Operation;
  return operation == Operation::all_reduce || operation == Operation::reduce                 ? 2
         : operation == Operation::reduce_scatter || operation == Operation::reduce_scatter_v ? 1
                                                                                              : 0;
}
inline comm::Operation operation_of(int kind) {
  using comm::Operation;
  return kind == 2 ? Operation::all_reduce : kind == 1 ? Operation::reduce_scatter : Operation::all_gather;
}

}  // namespace weft::plan::detail

namespace weft::plan {

WEFT_COLD WEFT_INLINE CandidateCosts::CandidateCosts(const Search& search, const Machine& machine, TrainPiece train)
    : search_(search), machine_(machine), train_(std::move(train)) {
  machine_.ranks_per_node = int(search.ranks_per_node);
}

WEFT_COLD WEFT_INLINE CandidateCosts::Key CandidateCosts::block_key(const Candidate& c, int micro_batch) {
  return {c.tp, c.cp, c.ep, c.etp, micro_batch, int(c.kept), c.sequence_parallel, c.ulysses};
}
WEFT_COLD WEFT_INLINE CandidateCosts::Key CandidateCosts::shard_key(const Candidate& c) {
  return {c.tp, c.ep, c.etp, c.sequence_parallel, c.zero};
}

/// Micro-batches whose rehearsals tell of this one: it or powers of two around it, and of those with many rows the smallest.
WEFT_COLD WEFT_INLINE std::array<int, 2> CandidateCosts::neighbours(const Candidate& c) const {
  constexpr std::int64_t many_rows = 8192;  // from here on products are as fast as they get
  int low = 1;
  while (2 * low < c.micro_batch && (low < 2 || low * search_.sequence / c.cp < many_rows)) low *= 2;
  if (low > 1 && low * search_.sequence / c.cp >= 2 * many_rows) low /= 2;
  return low == c.micro_batch ? std::array{low, low} : std::array{low, 2 * low};
}

WEFT_COLD WEFT_INLINE CandidateCosts::Read CandidateCosts::read(const Candidate& c, std::int64_t layers,
                                                                std::int64_t vocabulary) {
  using Kind = RehearsedTrace::Kind;
  ++rehearsals_;
  const Rehearsal notes = runtime::rehearse(
      {.rank = 0, .ranks = c.ranks(), .ranks_per_node = machine_.ranks_per_node, .trace = true}, [&](World& world) {
        train_(world, {c, layers, vocabulary});
      });
  const RehearsedTrace& trace = *notes.trace;
  EventCosts costs = costs_of(notes, machine_);
  costs.ranks_per_core = 1;
  costs.message = [all = costs.message](const RehearsedTrace::Event& e, const RehearsedTrace::Group& group) {
    return detail::data_axis(group.axis) >= 0 || detail::sums_over_context(e, group.axis) ? 0.0 : all(e, group);
  };
  const Replayed step = replay({&trace}, costs);
  Read read;
  const schedule::Order& order = step.table.orders.front();
  double end = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    end = std::max(end, step.timeline.end[0][i]);
    (order[i].what == schedule::Op::F ? read.forward : read.backward) += step.timeline.end[0][i] - step.timeline.start[0][i];
  }
  read.optimizer = step.seconds - end;
  read.kept = double(notes.kept.current);
  read.peak = double(notes.peak);
  std::size_t actions = 0, phase = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) actions += trace[i].kind == Kind::end;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const RehearsedTrace::Event& e = trace[i];
    if (e.kind == Kind::begin) phase = e.operation == 'F' ? 0 : 1;
    if (e.kind == Kind::end && --actions == 0) phase = 2;
    if (e.kind != Kind::call && e.kind != Kind::start) continue;
    const std::string& name = trace.groups[std::size_t(e.group)].axis;
    if (detail::sums_over_context(e, name)) read.context_bytes += e.amount, read.context_calls += 1;
    const int axis = detail::data_axis(name);
    if (axis < 0) continue;
    auto& sum = read.traffic[phase][std::size_t(axis)][std::size_t(detail::kind_of(comm::Operation(e.a)))];
    sum[0] += e.amount, sum[1] += 1;
  }
  return read;
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
  c.pp = c.chunks = c.micro_batches = c.dp = 1;
  c.zero = 0, c.micro_batch = micro_batch, c.order = {};
  while (std::int64_t(c.dp) * c.tp * c.cp % (std::int64_t(c.ep) * c.etp) != 0) ++c.dp;
  few_ = std::max<std::int64_t>(c.tp, search_.vocabulary / 8 / c.tp * c.tp);
  const Read one = read(c, 1, few_), two = read(c, 2, few_),
             head = few_ < search_.vocabulary ? read(c, 1, search_.vocabulary) : one;
  detail::BlockCosts costs;
  costs.forward = parts(one.forward, two.forward, head.forward, 1);
  costs.backward = parts(one.backward, two.backward, head.backward, 1);
  costs.optimizer = parts(one.optimizer, two.optimizer, head.optimizer, 1);
  costs.context_bytes = parts(one.context_bytes, two.context_bytes, head.context_bytes, 1);
  costs.context_calls = parts(one.context_calls, two.context_calls, head.context_calls, 1);
  costs.saved = two.peak - two.kept - (one.peak - one.kept);
  costs.temporary = one.peak - one.kept - costs.saved;
  costs.temporary_head = head.peak - head.kept - costs.saved;
  return blocks_.emplace(key, costs).first->second;
}

WEFT_COLD WEFT_INLINE detail::BlockCosts CandidateCosts::block(const Candidate& c) {
  const std::array<int, 2> around = neighbours(c);
  const detail::BlockCosts& low = block_of(c, around[0]);
  if (around[0] == around[1]) return low;
  return mix(low, block_of(c, around[1]), double(c.micro_batch - around[0]) / double(around[1] - around[0]));
}

WEFT_COLD WEFT_INLINE bool CandidateCosts::knows(const Candidate& c) const {
  for (const int micro_batch : neighbours(c))
    if (!blocks_.contains(block_key(c, micro_batch))) return false;
  return shards_.contains(shard_key(c));
}

WEFT_COLD WEFT_INLINE const detail::ShardCosts& CandidateCosts::shard(const Candidate& asked) {
  const Key key = shard_key(asked);
  if (const auto found = shards_.find(key); found != shards_.end()) return found->second;
  Candidate c = asked;
  c.pp = c.chunks = c.cp = c.micro_batch = c.dp = 1;
  c.micro_batches = 2, c.kept = Kept::all, c.order = {}, c.ulysses = false;
  while (std::int64_t(c.dp) * c.tp % (std::int64_t(c.ep) * c.etp) != 0) ++c.dp;
  few_ = std::max<std::int64_t>(c.tp, search_.vocabulary / 8 / c.tp * c.tp);
  Candidate plain = c;
  plain.zero = 0;
  const int less = 2 * c.dp, more = 16 * c.dp;
  constexpr int least = 3;  // two layers are gathered at a time, so memory is linear from the third on
  const auto all = [&](const Candidate& layout) {
    const Read fewer = read(layout, least, few_);
    return std::array{fewer, read(layout, least + 1, few_),
                      few_ < search_.vocabulary ? read(layout, least, search_.vocabulary) : fewer};
  };
  const auto parts_of = [&](const std::array<Read, 3>& r, const auto& f) { return parts(f(r[0]), f(r[1]), f(r[2]), least); };
  detail::ShardCosts costs;
  plain.dp = c.dp = more;
  const std::array<Read, 3> far = all(c), without = all(plain);
  c.dp = less;
  const std::array<Read, 3> near = all(c);
  // kept(x) = whole + cut / x.
  const auto kept = [](const Read& r) { return r.kept; };
  const detail::Parts at_far = parts_of(far, kept), at_near = parts_of(near, kept);
  const auto fit = [&](double near_bytes, double far_bytes, double& whole, double& cut) {
    cut = (near_bytes - far_bytes) / (1.0 / less - 1.0 / more);
    whole = far_bytes - cut / more;
  };
  fit(at_near.layer, at_far.layer, costs.whole.layer, costs.cut.layer);
  fit(at_near.rest, at_far.rest, costs.whole.rest, costs.cut.rest);
  fit(at_near.head, at_far.head, costs.whole.head, costs.cut.head);
  const auto beside = [](const Read& r) { return r.peak - r.kept; };
  const detail::Parts with = parts_of(far, beside), before = parts_of(without, beside);
  costs.temporary = {with.layer - before.layer, with.rest - before.rest, with.head - before.head};
  c.dp = more, c.micro_batches = 1;
  const Read once = read(c, least, few_);
  for (std::size_t phase = 0; phase < 3; ++phase)
    for (std::size_t axis = 0; axis < 2; ++axis)
      for (std::size_t kind = 0; kind < 3; ++kind) {
        const auto of = [&](std::size_t what) {
          return parts_of(far, [&](const Read& r) { return r.traffic[phase][axis][kind][what]; });
        };
        const double first = once.traffic[phase][axis][kind][0], both = far[0].traffic[phase][axis][kind][0];
        const double each = first > 0 ? std::clamp(both / first - 1, 0.0, 1.0) : 0;
        detail::Parts bytes = of(0), calls = of(1);
        for (detail::Parts* p : {&bytes, &calls}) p->layer /= 1 + each, p->rest /= 1 + each, p->head /= 1 + each;
        costs.traffic[phase][axis][kind] = {bytes, calls, each};
      }
  return shards_.emplace(key, costs).first->second;
}

WEFT_COLD WEFT_INLINE CandidateCost CandidateCosts::of(const Candidate& c) {
  const detail::BlockCosts block = this->block(c);
  const detail::ShardCosts& shard = this->shard(c);
  double saved = block.saved;
  if ((c.order == PipelineOrder::zero_bubble_h1 || c.order == PipelineOrder::zbv) &&
      c.kept != Kept::all) {  // what is computed again waits for the weights' turn
    Candidate all = c;
    all.kept = Kept::all;
    saved = this->block(all).saved;
  }
  const double layers = double(search_.layers) / c.pp, x = c.dp, m = c.micro_batches;
  // The first stage has the embedding, the last the head; both have the table if it is tied.
  const bool alone = c.pp == 1, v_shape = c.order == PipelineOrder::zbv;
  const double first_head = alone                     ? 1
                            : search_.tied || v_shape ? 1
                                                      : 0.5,
               last_head = alone || search_.tied ? 1
                           : v_shape             ? 0
                                                 : 0.5;
  struct Times {
    double forward, backward, once;
  };
  const int stride = c.tp * c.cp, expert_stride = c.ep * c.etp;
  const double edp = std::max(1.0, x * c.cp * c.tp / double(expert_stride));
  const auto seconds = [&](double rests, double heads, double parameter_heads) {
    Times t{block.forward.of(layers, rests, heads), block.backward.of(layers, rests, heads), 0};
    double sent[3][2] = {};  // by phase: each micro-batch, once
    for (std::size_t phase = 0; phase < 3; ++phase)
      for (std::size_t axis = 0; axis < 2; ++axis)
        for (std::size_t kind = 0; kind < 3; ++kind) {
          const detail::ShardCosts::Traffic& one = shard.traffic[phase][axis][kind];
          const double bytes = one.bytes.of(layers, rests, parameter_heads),
                       calls = std::max(1.0, one.calls.of(layers, rests, parameter_heads));
          const double ranks = axis == 0 ? x : edp;
          if (bytes <= 0 || ranks <= 1) continue;
          const int here =
              std::max(1, std::min(int(ranks), machine_.ranks_per_node / std::max(1, axis == 0 ? stride : expert_stride)));
          const double took = calls * machine_.collective_s(detail::operation_of(int(kind)), bytes / calls, int(ranks), here);
          sent[phase][0] += one.each * took, sent[phase][1] += (1 - one.each) * took;
        }
    // Beside the computing of other layers; the first or last of them has nothing to hide behind.
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
      const bool rounds = c.zero == 1 && search_.element_bytes < 4;  // sums are kept in 16 bits between micro-batches
      (c.zero >= 2 || rounds ? t.backward : t.once) += sums;
    }
    t.once += block.optimizer.of(layers, rests, parameter_heads) / (c.zero > 0 ? x : 1);
    return t;
  };
  const Times last = alone ? seconds(1, 1, 1) : seconds(0.5, 1, last_head), middle = alone ? last : seconds(0, 0, 0);
  const double busy = last.forward + last.backward;
  const detail::PipelineFormulas pipeline = detail::pipeline_formulas(c, middle.forward, middle.backward);
  CandidateCost cost;
  cost.seconds = m * busy + last.once + (alone ? 0 : pipeline.bubble);
  const double work = m * ((c.pp - 1) * (middle.forward + middle.backward) + busy) / c.pp + last.once;
  const double hidden = double(c.micro_batch) * double(search_.sequence) / c.cp / (c.sequence_parallel ? c.tp : 1) *
                        double(search_.width) * double(search_.element_bytes);
  if (!alone) {
    const double message = machine_.message_s(hidden, search_.ranks > search_.ranks_per_node);
    const double in_a_row = c.chunks == 1 ? 2 * m * (c.pp - 1) / c.pp : 0;  // a micro-batch comes back before the next may go
    cost.seconds += message * (2.0 * (c.pp * c.chunks - 1) + in_a_row);
  }
  cost.seconds = std::max(cost.seconds, machine_.ranks_per_core * work);
  const auto bytes = [&](double rests, double heads, double held, double temporary) {
    const double stage = layers / c.chunks;
    const double buffers = alone ? 0 : 2 * hidden + held * hidden / std::max(1.0, stage * 8);
    return shard.whole.of(layers, rests, heads) + shard.cut.of(layers, rests, heads) / x +
           std::max(0.0, shard.temporary.of(layers, rests, heads)) + held * stage * saved + temporary + buffers;
  };
  const double with_head = std::max(block.temporary, block.temporary_head);
  cost.memory =
      std::max(bytes(alone ? 1 : 0.5, first_head, alone ? 1 : pipeline.first, alone || v_shape ? with_head : block.temporary),
               bytes(alone ? 1 : 0.5, last_head, alone ? 1 : pipeline.last, with_head));
  return cost;
}

}  // namespace weft::plan
