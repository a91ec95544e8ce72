// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention with multi-head or grouped-query heads under a mask (causal, full, sliding window, documents), and rotary positions.
// The core has no parameters and computes whole heads, so it needs no communication if tp shards the heads. It needs whole
// sequences; if cp shards them, it gets the missing keys and values from the other ranks by a ring or by Ulysses
// (ModelOptions::context).
//
//   Sequential(RotaryPositions(heads.width), Attention(context / "attn", heads, {.window = 1024}))

#include <optional>
#include <tuple>
#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/model.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/context/global_index.hpp>
#include <weft/kernels/attention.hpp>
#include <weft/kernels/rope.hpp>
#include <weft/mesh/layout.hpp>
#include <weft/nn/cached_attention.hpp>
#include <weft/nn/norm.hpp>
#include <weft/nn/ring_attention.hpp>
#include <weft/nn/ulysses_attention.hpp>

namespace weft {

/// The heads of the whole model, and their width.
struct AttentionHeads {
  std::size_t query = 1, key_value = 1, width = 1;
};

namespace detail {

inline void require_heads(const AttentionHeads& heads, std::size_t ranks) {
  if (heads.query % heads.key_value != 0)
    throw_error<LayoutError>({"heads(", heads.query, ") % key-value heads(", heads.key_value, ") != 0"});
  if (heads.query % ranks != 0)
    throw_error<LayoutError>({"heads(", heads.query, ") % tp(", ranks, ") != 0: a rank holds whole heads"});
  if (heads.key_value % ranks != 0 && ranks % heads.key_value != 0)
    throw_error<LayoutError>({"key-value heads(", heads.key_value, ") neither divide into nor repeat over tp(", ranks, ")"});
}

// Throws LayoutError for sequences or heads that cp cannot divide.
inline void require_context(const AttentionHeads& heads, std::size_t sequence, const ModelDegrees& degrees) {
  require_chunks(sequence, degrees.cp);
  if (degrees.ulysses) require_ulysses(heads.query, heads.key_value, degrees.tp, degrees.cp);
}

// This rank's heads: tp shards query heads. Key-value heads are sharded too, or each is held by tp / key_value ranks.
template <class Context>
AttentionHeads local_heads(const Context& context, const AttentionHeads& heads) {
  const std::size_t ranks = context.size(tp{});
  require_heads(heads, ranks);
  return {heads.query / ranks, std::max<std::size_t>(1, heads.key_value / ranks), heads.width};
}

// Throws LayoutError if several ranks of cp hold a key-value head: the sum of its gradients has no fixed terms.
WEFT_COLD inline void require_one_holder(std::size_t kv_heads, std::size_t cp_ranks) {
  if (kv_heads % cp_ranks != 0)
    throw_error<LayoutError>({"numerics.reproducible_degree: kv heads of a tp rank(", kv_heads, ") % cp(", cp_ranks,
                              ") != 0: several ranks would hold a head, and the sum of its gradients depends on their number; "
                              "use a cp that divides the heads"});
}

template <class X>
std::size_t sequences_of(const X& x, std::size_t length) {
  if (length == 0 || x.rows() % length != 0)
    throw_error<ShapeError>(
        {call_text("attention", {x}), ": ", x.rows(), " rows are not whole sequences of ", length, " tokens"});
  return x.rows() / length;
}

}  // namespace detail

/// softmax(q kᵀ / √width) v over the keys that the mask allows, by tiles (arXiv:2205.14135); statistics in accumulate_t. The
/// input is one fused tensor [tokens, (query + 2 key_value) width], query first, or a tuple (query, key, value) of [tokens, heads
/// · width]; returns [tokens, query · width]. Under tp these heads are this rank's. Under cp tokens are this rank's part of each
/// sequence (Zigzag), and the call is collective over cp. If a batch has documents (Batch::documents), tokens attend only within
/// their document. Blocks of keys that a window or a document hides are not computed.
class Attention : public Primitive<Attention> {
 public:
  template <class Context>
  Attention(const Context& context, const AttentionHeads& heads, const AttentionMask& mask = {})
      : heads_(detail::local_heads(context, heads)),
        mask_(mask),
        fused_cut_(context.size(tp{}) > 1 ? DimSharding::segments : DimSharding::even),
        kv_cut_(DimSharding::even) {
    if (heads.key_value % context.size(tp{}) != 0) fused_cut_ = kv_cut_ = DimSharding::replicated;
    if (detail::uses_ulysses(context)) {
      detail::require_ulysses(heads.query, heads.key_value, context.size(tp{}), context.size(cp{}));
      if (context.device().chunk_terms() != 0) detail::require_one_holder(heads_.key_value, context.size(cp{}));
    }
  }

  template <class Context, class Input>
  auto forward(const Context& context, const Input& input) const {
    using X = std::remove_cvref_t<decltype(first_of(input))>;
    require_not_partial<X>();
    X y(first_of(input).device(), {first_of(input).rows(), heads_.query * heads_.width});
    if constexpr (Context::has(cp{})) {
      using S = Whichever<decltype(in_place(context, input, y)), decltype(by_heads(context, input, y))>;
      if (detail::uses_ulysses(context) && context.env.cached == nullptr) {
        S saved{{}, by_heads(context, input, y)};
        return Result{std::move(y), std::move(saved)};
      }
      S saved{in_place(context, input, y), {}};
      return Result{std::move(y), std::move(saved)};
    } else {
      auto saved = in_place(context, input, y);
      return Result{std::move(y), std::move(saved)};
    }
  }

  template <class Context, class S, class G>
  auto backward(const Context& context, S saved, const G& g) const {
    require_gradient_of<typename S::output_type, G>();
    auto d = gradient_like<typename S::input_type>(g);
    const auto out = operands_of<typename G::value_type>(d);
    if constexpr (Context::has(cp{})) {
      if (saved.by_heads) differentiate_by_heads(context, std::move(*saved.by_heads), g, out);
      else differentiate_in_place(context, std::move(*saved.in_place), g, out);
    } else {
      differentiate_in_place(context, std::move(saved), g, out);
    }
    return d;
  }

 private:
  template <class Input, class Output, class S>
  struct Saved {
    using input_type = Input;
    using output_type = Output;
    Input input;
    Output output;
    S log_sum_exp;  // [sequences, heads, length]
  };
  // Saved state of Ulysses: whole sequences of some heads.
  template <class Input, class Output, class Whole, class S>
  struct Exchanged {
    using input_type = Input;
    using output_type = Output;
    Whole fused, output;
    S log_sum_exp;
  };

  // One of the two above, chosen at run time.
  template <class InPlace, class ByHeads>
  struct Whichever {
    using input_type = typename InPlace::input_type;
    using output_type = typename InPlace::output_type;
    std::optional<InPlace> in_place;
    std::optional<ByHeads> by_heads;
  };

  // Each rank keeps its tokens; under cp keys and values are passed around a ring.
  template <class Context, class Input, class X>
  auto in_place(const Context& context, const Input& input, const X& y) const {
    const auto extents = extents_of(context, y);
    const auto in = operands_of<const typename X::value_type>(input);
    if (context.env.cached != nullptr && detail::attend_cached(y.device(), *context.env.cached, mask_, extents, in, y.data()))
      return Saved<Input, X, detail::Statistics<X>>{input, y, {}};
    detail::Statistics<X> log_sum_exp(y.device(), {extents.sequences, extents.heads, extents.length});
    bool alone = true;
    if constexpr (Context::has(cp{})) {
      alone = context.size(cp{}) == 1;
      if (!alone)
        detail::ring_attention_forward(y.device(), context.comm(cp{}), extents, in, y.data(), log_sum_exp.data(),
                                       detail::RingMask{mask_, context.env.documents.get()});
    }
    if (alone) attend(context, extents, in, y.data(), log_sum_exp.data());
    return Saved<Input, X, detail::Statistics<X>>{input, y, std::move(log_sum_exp)};
  }
  template <class Context, class S, class G>
  void differentiate_in_place(const Context& context, S saved, const G& g,
                              const detail::Operands<typename G::value_type>& d) const {
    using T = typename G::value_type;
    const auto extents = extents_of(context, g);
    const auto in = operands_of<const T>(saved.input);
    bool alone = true;
    if constexpr (Context::has(cp{})) {
      alone = context.size(cp{}) == 1;
      if (!alone) {
        detail::ring_attention_backward(g.device(), context.comm(cp{}), extents, in, static_cast<const T*>(saved.output.data()),
                                        static_cast<const T*>(g.data()), saved.log_sum_exp.data(), d,
                                        detail::RingMask{mask_, context.env.documents.get()});
      }
    }
    if (alone) differentiate(context, extents, in, saved.output.data(), g.data(), saved.log_sum_exp.data(), d);
  }

  // The ranks of cp exchange tokens for heads, and back (Ulysses).
  template <class Context, class Input, class X>
  auto by_heads(const Context& context, const Input& input, const X& y) const {
    using T = typename X::value_type;
    using Exec = typename X::execution_space;
    using Whole = Tensor<T, Exec>;
    auto& device = y.device();
    const detail::HeadExchange<T, Exec> exchange(device, context.comm(cp{}), extents_of(context, y));
    const auto& whole = exchange.whole();
    Whole fused = exchange.gather(operands_of<const T>(input)), out(device, {whole.rows(), whole.width()});
    Tensor<accumulate_t<T>, Exec> log_sum_exp(device, {whole.sequences, whole.heads, whole.length});
    attend(context, whole, exchange.operands(static_cast<const T*>(fused.data())), out.data(), log_sum_exp.data());
    exchange.scatter(out, y.data());
    return Exchanged<Input, X, Whole, decltype(log_sum_exp)>{std::move(fused), std::move(out), std::move(log_sum_exp)};
  }
  template <class Context, class S, class G>
  void differentiate_by_heads(const Context& context, S saved, const G& g,
                              const detail::Operands<typename G::value_type>& d) const {
    using T = typename G::value_type;
    auto& device = g.device();
    const detail::HeadExchange<T, typename G::execution_space> exchange(device, context.comm(cp{}), extents_of(context, g));
    const auto g_whole = exchange.gather(g.data());
    std::remove_cvref_t<decltype(saved.fused)> d_whole(device, saved.fused.shape());
    differentiate(context, exchange.whole(), exchange.operands(static_cast<const T*>(saved.fused.data())), saved.output.data(),
                  g_whole.data(), saved.log_sum_exp.data(), exchange.operands(d_whole.data()));
    exchange.scatter(d_whole, d);
  }

  template <AnyTensor X>
  static const X& first_of(const X& fused) {
    return fused;
  }
  template <class X>
  static const X& first_of(const std::tuple<X, X, X>& in) {
    return std::get<0>(in);
  }

  // The extents; x may be the output or its gradient, which have the same rows.
  template <class Context, class X>
  detail::AttentionExtents extents_of(const Context& context, const X& x) const {
    const std::size_t length = detail::whole_sequence_length(context, x) / context.size(cp{});
    return {.sequences = detail::sequences_of(x, length),
            .length = length,
            .heads = heads_.query,
            .kv_heads = heads_.key_value,
            .head_width = heads_.width};
  }

  template <class T, AnyTensor X>
  detail::Operands<T> operands_of(const X& fused) const {
    const std::size_t q = heads_.query * heads_.width, kv = heads_.key_value * heads_.width, stride = fused.columns();
    if (stride != q + 2 * kv)
      throw_error<ShapeError>(
          {detail::call_text("attention", {fused}), ": expected ", q + 2 * kv, " columns, query, key and value"});
    return {.q = fused.data(),
            .k = fused.data() + q,
            .v = fused.data() + q + kv,
            .q_stride = stride,
            .k_stride = stride,
            .v_stride = stride};
  }
  template <class T, class X>
  detail::Operands<T> operands_of(const std::tuple<X, X, X>& in) const {
    const X &q = std::get<0>(in), &k = std::get<1>(in), &v = std::get<2>(in);
    const std::size_t kv = heads_.key_value * heads_.width;
    if (q.columns() != heads_.query * heads_.width || k.columns() != kv || v.columns() != kv)
      throw_error<ShapeError>({detail::call_text("attention", {q, k, v}), ": expected ", heads_.query * heads_.width,
                               " columns of the query and ", kv, " of key and value (merge_heads first)"});
    return {
        .q = q.data(), .k = k.data(), .v = v.data(), .q_stride = q.columns(), .k_stride = k.columns(), .v_stride = v.columns()};
  }

  template <class Input, class G>
  auto gradient_like(const G& g) const {
    const std::size_t q = heads_.query * heads_.width, kv = heads_.key_value * heads_.width;
    const auto cut = [&](std::size_t columns, DimSharding how) { return Shape{g.rows(), columns}.set_sharding(1, how); };
    if constexpr (AnyTensor<Input>) return G(g.device(), cut(q + 2 * kv, fused_cut_));
    else
      return std::tuple<G, G, G>{G(g.device(), {g.rows(), q}), G(g.device(), cut(kv, kv_cut_)), G(g.device(), cut(kv, kv_cut_))};
  }

  // Attention of whole sequences.
  template <class Context, class T>
  void attend(const Context& context, const detail::AttentionExtents& e, const detail::Operands<const T>& in, T* out,
              accumulate_t<T>* log_sum_exp) const {
    kernels::attention_forward<T>(context.device(), e, in, {out, e.width()}, log_sum_exp, mask_,
                                  {.documents = context.env.documents.get()});
  }
  template <class Context, class T>
  void differentiate(const Context& context, const detail::AttentionExtents& e, const detail::Operands<const T>& in,
                     const T* output, const T* g, const accumulate_t<T>* log_sum_exp, const detail::Operands<T>& d) const {
    kernels::attention_backward<T>(context.device(), e, in, {output, e.width()}, {g, e.width()}, log_sum_exp, d, mask_,
                                   {.documents = context.env.documents.get()});
  }

  AttentionHeads heads_;
  AttentionMask mask_;
  DimSharding fused_cut_, kv_cut_;  // of the input's columns
};

/// Attention of language models: each token attends to itself and to earlier tokens.
class CausalAttention : public Attention {
 public:
  template <class Context>
  CausalAttention(const Context& context, const AttentionHeads& heads) : Attention(context, heads) {}
};

/// Rotary positions (arXiv:2104.09864) on query and key of a tuple (query, key, value), in Hugging Face's half-split form. Throws
/// LayoutError for an odd head width, and for an invalid scaling.
class RotaryPositions : public Primitive<RotaryPositions> {
 public:
  explicit RotaryPositions(std::size_t head_width, double base = 10000, const RopeScaling& scaling = {})
      : head_width_(head_width), base_(base), scaling_(scaling) {
    if (head_width % 2 != 0) throw_error<LayoutError>({"rotary positions need an even head width, not ", head_width});
    scaling.check(head_width);
  }

  template <class Context, class X>
  auto forward(const Context& context, const std::tuple<X, X, X>& in) const {
    require_not_partial<X>();
    return Result{turn(context, in, false), Nothing{}};
  }
  template <class Context, class G>
  auto backward(const Context& context, Nothing, const std::tuple<G, G, G>& g) const {
    return turn(context, g, true);
  }

 private:
  template <class Context, class X>
  auto turn(const Context& context, const std::tuple<X, X, X>& in, bool inverse) const {
    const X &q = std::get<0>(in), &k = std::get<1>(in);
    const auto positions = positions_of(context, q);
    const std::size_t rows = positions.size(), q_columns = rows == 0 ? 0 : q.size() / rows,
                      k_columns = rows == 0 ? 0 : k.size() / rows;  // also for a view by heads
    if (k.shape()[0] != rows || q_columns % head_width_ != 0 || k_columns % head_width_ != 0)
      throw_error<ShapeError>({detail::call_text("rotary positions", {q, k}),
                               ": expected the same rows of query and key, in heads of width ", head_width_});
    const kernels::RopeFrequencies frequencies(base_, scaling_, scaling_.follows_length() ? length_of(context, q) : 0);
    X q_out(q.device(), q.shape()), k_out(k.device(), k.shape());
    kernels::rope(q.device(), rows, q_columns / head_width_, head_width_, q.data(), q_columns, q_out.data(), q_columns,
                  positions.data(), frequencies, inverse);
    kernels::rope(k.device(), rows, k_columns / head_width_, head_width_, k.data(), k_columns, k_out.data(), k_columns,
                  positions.data(), frequencies, inverse);
    return std::tuple<X, X, X>{std::move(q_out), std::move(k_out), std::get<2>(in)};
  }

  // Length of the whole sequence, including cached tokens: the same on all ranks.
  template <class Context, class X>
  static std::size_t length_of(const Context& context, const X& q) {
    return context.env.cached != nullptr ? context.env.cached->longest : detail::whole_sequence_length(context, q);
  }

  std::size_t head_width_;
  double base_;
  RopeScaling scaling_;
};

}  // namespace weft
