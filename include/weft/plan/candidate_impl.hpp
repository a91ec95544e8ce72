// SPDX-License-Identifier: Apache-2.0
#pragma once
// The enumeration of legal layouts. Definitions for plan/candidate.hpp.

#include <algorithm>
#include <utility>

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/pipeline/schedule/dualpipev.hpp>
#include <weft/plan/candidate.hpp>

namespace weft::plan::detail {

WEFT_COLD WEFT_INLINE std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> small, large;
  for (std::int64_t d = 1; d * d <= n; ++d)
    if (n % d == 0) {
      small.push_back(d);
      if (d * d != n) large.push_back(n / d);
    }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

/// True if one of the two divides the other.
inline bool nested(std::int64_t a, std::int64_t b) { return a % b == 0 || b % a == 0; }

/// Nested loops over all settings: each function sets one setting and calls the next.
class Candidates {
 public:
  Candidates(const Search& search, const std::function<void(const Candidate&)>& f) : s_(search), f_(f) {}

  WEFT_COLD void run() {
    for (const std::int64_t cp : divisors(s_.ranks)) {
      if (cp > 1 && s_.sequence % (2 * cp) != 0) continue;
      for (const std::int64_t tp : divisors(s_.ranks / cp)) {
        if (s_.ranks_per_node % tp != 0 || s_.heads % tp != 0 || !nested(s_.kv_heads, tp)) continue;
        if (s_.experts == 0 && s_.columns % tp != 0) continue;
        c_.cp = std::int32_t(cp), c_.tp = std::int32_t(tp);
        context();
      }
    }
  }

 private:
  void context() {
    const std::int64_t heads = s_.heads / c_.tp, kv = std::max<std::int64_t>(1, s_.kv_heads / c_.tp);
    for (const bool ulysses : {false, true}) {
      if (ulysses && (c_.cp == 1 || heads % c_.cp != 0 || !nested(kv, c_.cp))) continue;
      for (const bool rows : {false, true}) {
        if (rows && (c_.tp == 1 || !s_.sequence_parallel)) continue;
        if ((rows || s_.experts > 0) && s_.sequence % (c_.tp * c_.cp) != 0) continue;
        c_.ulysses = ulysses, c_.sequence_parallel = rows;
        pipeline();
      }
    }
  }

  void pipeline() {
    const std::int64_t left = s_.ranks / (c_.cp * c_.tp);
    for (const std::int64_t pp : divisors(left)) {
      if (s_.layers < pp || s_.global_batch % (left / pp) != 0) continue;
      c_.pp = std::int32_t(pp), c_.dp = std::int32_t(left / pp);
      micro_batches_ = divisors(s_.global_batch / c_.dp), copies_ = divisors(c_.dp);
      using enum PipelineOrder;
      orders(one_forward_one_backward, 1);
      if (pp == 1) continue;
      orders(gpipe, 1), orders(zero_bubble_h1, 1);
      for (const std::int64_t chunks : divisors((s_.layers + pp - 1) / pp)) {
        if (chunks * pp > s_.layers) continue;
        if (chunks == 2) orders(zbv, 2), orders(dualpipev, 2);
        if (chunks > 1) orders(interleaved, chunks), orders(interleaved_zero_bubble, chunks);
      }
    }
  }

  void orders(PipelineOrder order, std::int64_t chunks) {
    c_.order = order, c_.chunks = std::int32_t(chunks);
    c_.ep = c_.etp = 1;
    if (s_.experts == 0) return batches();
    const std::int64_t stage = s_.ranks / c_.pp;
    for (const std::int64_t ep : divisors(s_.experts))
      for (const bool whole : {false, true}) {
        const std::int64_t etp = whole ? 1 : c_.tp;
        if (whole && c_.tp == 1) continue;  // identical to the layout without it
        if (stage % (ep * etp) != 0 || s_.columns % etp != 0) continue;
        c_.ep = std::int32_t(ep), c_.etp = std::int32_t(etp);
        batches();
      }
  }

  void batches() {
    for (const std::int64_t micro_batch : micro_batches_) {
      c_.micro_batch = std::int32_t(micro_batch);
      c_.micro_batches = std::int32_t(s_.global_batch / c_.dp / micro_batch);
      if (c_.order == PipelineOrder::dualpipev && !schedule::DualPipeV::applies(c_.pp, c_.micro_batches)) continue;
      for (const Kept kept : {Kept::all, Kept::selected, Kept::inputs})
        for (int zero = 0; zero <= (c_.dp > 1 ? 3 : 0); ++zero) {
          c_.kept = kept, c_.zero = std::int8_t(zero);
          shares();
        }
    }
  }

  void shares() {
    const std::int64_t expert_data = s_.experts == 0 ? c_.dp : s_.ranks / c_.pp / (c_.ep * c_.etp);
    for (const std::int64_t copies : copies_) {
      if (copies > 1 && (c_.zero == 0 || copies == c_.dp)) break;
      if (expert_data % copies != 0) continue;
      c_.replicate = std::int32_t(copies);
      for (const bool offload : {false, true}) {
        if (offload && s_.memory <= 0) continue;
        c_.offload = offload, c_.loss_chunks = 1;
        places();
        c_.loss_chunks = loss_chunks_of(s_, c_, c_.micro_batch);
        if (c_.loss_chunks > 1 && s_.memory > 0) places();
      }
    }
  }

  void places() {
    for (const bool on_host : {false, true}) {
      if (on_host && !(s_.host_activations && s_.memory > 0)) break;
      c_.host_activations = on_host;
      f_(c_);
    }
  }

  const Search& s_;
  const std::function<void(const Candidate&)>& f_;
  Candidate c_;
  std::vector<std::int64_t> micro_batches_, copies_;  // for the current dp: sequences per micro-batch, copies of shards
};

}  // namespace weft::plan::detail

namespace weft::plan {

WEFT_COLD WEFT_INLINE std::string_view name_of(Kept kept) {
  return kept == Kept::all ? "none" : kept == Kept::selected ? "selective" : "full";
}

WEFT_COLD WEFT_INLINE std::string_view name_of(PipelineOrder order) {
  using enum PipelineOrder;
  switch (order) {
    case one_forward_one_backward: return "1f1b";
    case gpipe: return "gpipe";
    case interleaved: return "interleaved";
    case zero_bubble_h1: return "zb-h1";
    case interleaved_zero_bubble: return "interleaved-zb";
    case zbv: return "zbv";
    case dualpipev: break;
  }
  return "dualpipev";
}

WEFT_COLD WEFT_INLINE bool takes_chunks(PipelineOrder order) {
  return order == PipelineOrder::interleaved || order == PipelineOrder::interleaved_zero_bubble;
}

WEFT_COLD WEFT_INLINE bool splits_backward(PipelineOrder order) {
  using enum PipelineOrder;
  return order == zero_bubble_h1 || order == interleaved_zero_bubble || is_v_shape(order);
}

WEFT_COLD WEFT_INLINE bool is_v_shape(PipelineOrder order) {
  return order == PipelineOrder::zbv || order == PipelineOrder::dualpipev;
}

WEFT_COLD WEFT_INLINE std::string text_of(const Candidate& c) {
  std::string text;
  const auto degree = [&](const char* name, int value) {
    if (value == 1) return;
    if (!text.empty()) text += ' ';
    (text += name) += std::to_string(value);
  };
  degree("dp", c.dp), degree("tp", c.tp);
  if (c.sequence_parallel) text += "s";
  degree("cp", c.cp);
  if (c.ulysses) text += "u";
  degree("pp", c.pp);
  if (c.pp > 1) (text += ' ') += name_of(c.order);
  if (takes_chunks(c.order)) text += std::to_string(c.chunks);
  degree("ep", c.ep);
  if (c.ep > 1 || c.etp != c.tp) degree("etp", c.etp);
  if (text.empty()) text = "one rank";
  if (c.zero > 0) (text += " zero") += std::to_string(c.zero);
  if (c.replicate > 1) ((text += " in ") += std::to_string(c.replicate)) += " copies";
  if (c.offload) text += " offload";
  (((text += ", ") += std::to_string(c.micro_batches)) += " x ") += std::to_string(c.micro_batch);
  if (c.kept != Kept::all) (text += ", recompute ") += name_of(c.kept);
  if (c.host_activations) text += ", activations on the host";
  if (c.loss_chunks > 1) ((text += ", loss in ") += std::to_string(c.loss_chunks)) += " parts";
  return text;
}

WEFT_COLD WEFT_INLINE void for_each_candidate(const Search& search, const std::function<void(const Candidate&)>& f) {
  constexpr std::int64_t most = std::int64_t(1) << 30;
  for (const auto& [name, value] :
       {std::pair("ranks", search.ranks), std::pair("ranks per node", search.ranks_per_node),
        std::pair("global batch", search.global_batch), std::pair("layers", search.layers), std::pair("width", search.width),
        std::pair("heads", search.heads), std::pair("kv heads", search.kv_heads), std::pair("sequence", search.sequence),
        std::pair("vocabulary", search.vocabulary), std::pair("columns", search.columns)})
    if (value < 1 || value > most) throw_error<UsageError>({"choose: ", name, "(", value, "): it is from 1 to ", most});
  if (search.heads % search.kv_heads != 0)
    throw_error<UsageError>({"choose: heads(", search.heads, ") % kv heads(", search.kv_heads,
                             ") != 0: every key and value head serves as many heads"});
  detail::Candidates(search, f).run();
}

WEFT_COLD WEFT_INLINE std::int32_t loss_chunks_of(const Search& search, const Candidate& c, std::int64_t micro_batch) {
  if (search.loss_tokens <= 0) return 1;
  const std::int64_t tokens = micro_batch * search.sequence / c.cp;
  return std::int32_t(std::max<std::int64_t>(1, (tokens + search.loss_tokens - 1) / search.loss_tokens));
}

WEFT_COLD WEFT_INLINE std::vector<Candidate> candidates(const Search& search) {
  std::vector<Candidate> all;
  for_each_candidate(search, [&](const Candidate& c) { all.push_back(c); });
  return all;
}

}  // namespace weft::plan
