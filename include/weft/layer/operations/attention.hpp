// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention as an operation on [heads, tokens, width], for layers that make queries, keys and values in their own way. Dim 0 is
// any number of heads that do not see each other (heads of samples, too), so an axis may cut it. The layer nn/attention.hpp does
// without this order of dims, shares key-value heads and goes over cp.
//
//   const auto seen = attention(q, k, v, {.causal = false}, keep);   // keep [1, 1, keys], uint8: 0 hides a key
//   auto [dq, dk, dv] = attention_gradient(q, k, v, seen, g, {.causal = false}, keep);

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/kernels/attention.hpp>
#include <weft/layer/operations/reductions.hpp>
#include <weft/layer/variable.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace operations {

/// The result of attention, and the statistics that its gradient needs.
template <AnyTensor X, AnyTensor L>
struct Attended {
  X output;       ///< [heads, tokens, width]
  L log_sum_exp;  ///< [heads, tokens] in accumulate_t
};

}  // namespace operations

namespace detail {

template <class X>
void require_attention(const X& q, const X& k, const X& v, const AttentionMask& mask) {
  require_not_partial<X>();
  static_assert(
      !sharded_along<X, 1> && !sharded_along<X, 2> && !sharded_along<X, 3>,
      "weft: attention needs all tokens and the whole width of a head, but an axis cuts dim 1 or 2: cut heads, dim 0, or "
      "use the layer Attention, which goes over cp");
  require_dims("attention", q.shape(), 3);
  require_dims("attention", k.shape(), 3);
  if (!(k.shape() == v.shape()) || q.shape()[0] != k.shape()[0] || q.shape()[2] != k.shape()[2])
    throw_error<ShapeError>({"attention of query ", q.shape().text(), ", key ", k.shape().text(), " and value ", v.shape().text(),
                             ", expected [heads, tokens, width], [heads, keys, width] and the same"});
  if (q.shape()[1] != k.shape()[1] && (mask.causal || mask.window != 0))
    throw_error<ShapeError>({"attention of ", q.shape()[1], " queries and ", k.shape()[1],
                             " keys: causal and a window go by positions, which only a sequence beside itself has; take "
                             "{.causal = false} and a mask"});
}

/// A tensor of the mask, as arrays of the kernel. M: uint8 (0 hides), or accumulate_t of the values (added to scores).
template <class X, class M>
auto mask_arrays(const X& q, const X& k, const M& mask) {
  using A = accumulate_t<typename X::value_type>;
  constexpr bool boolean = std::is_same_v<typename M::value_type, std::uint8_t>;
  static_assert(boolean || std::is_same_v<typename M::value_type, A>,
                "weft: attention's mask holds std::uint8_t, 0 for a hidden key, or numbers that are added to the scores, in "
                "accumulate_t of the values (float for bfloat16 and float, double for double)");
  static_assert(!any_partial<M> && !sharded_along<M, 1> && !sharded_along<M, 2>,
                "weft: attention's mask is whole, or cut along dim 0 as the heads are");
  const Shape& shape = mask.shape();
  const std::size_t heads = q.shape()[0], queries = q.shape()[1], keys = k.shape()[1];
  if (shape.rank() != 3 || shape[2] != keys || (shape[0] != 1 && shape[0] != heads) || (shape[1] != 1 && shape[1] != queries))
    throw_error<ShapeError>({"attention's mask ", shape.text(), ", expected [", heads, " or 1, ", queries, " or 1, ", keys,
                             "]: of heads, queries and keys; 1 where all have the same"});
  kernels::MaskArrays<A> arrays;
  if constexpr (boolean) arrays.visible = mask.data();
  else if constexpr (std::is_same_v<typename M::value_type, A>) arrays.added = mask.data();
  arrays.sequence_step = shape[0] == 1 ? 0 : shape[1] * keys;
  arrays.query_step = shape[1] == 1 ? 0 : keys;
  return arrays;
}

template <class X, class A>
auto attended(const X& q, const X& k, const X& v, const AttentionMask& mask, const kernels::MaskArrays<A>& arrays) {
  using T = typename X::value_type;
  require_attention(q, k, v, mask);
  const std::size_t width = q.shape()[2];
  using L = typename Rescalar<X, A>::type;
  operations::Attended<X, L> result{X(q.device(), q.shape()), L(q.device(), {q.shape()[0], q.shape()[1]})};
  kernels::attention_forward<T>(
      q.device(), {.sequences = q.shape()[0], .length = q.shape()[1], .head_width = width, .keys = k.shape()[1]},
      {.q = q.data(), .k = k.data(), .v = v.data(), .q_stride = width, .k_stride = width, .v_stride = width},
      {result.output.data(), width}, result.log_sum_exp.data(), mask, arrays);
  return result;
}

template <class X, class R, class G, class A>
std::tuple<gradient_t<X>, gradient_t<X>, gradient_t<X>> attended_gradient(const X& q, const X& k, const X& v, const R& result,
                                                                          const G& g, const AttentionMask& mask,
                                                                          const kernels::MaskArrays<A>& arrays) {
  using T = typename X::value_type;
  require_gradient_of<X, G>();
  require_attention(q, k, v, mask);
  require_same_shape("attention_gradient", result.output.shape(), g.shape());
  using D = gradient_t<X>;
  const std::size_t width = q.shape()[2];
  D dq(q.device(), q.shape()), dk(q.device(), k.shape()), dv(q.device(), v.shape());
  kernels::attention_backward<T>(
      q.device(), {.sequences = q.shape()[0], .length = q.shape()[1], .head_width = width, .keys = k.shape()[1]},
      {.q = q.data(), .k = k.data(), .v = v.data(), .q_stride = width, .k_stride = width, .v_stride = width},
      {result.output.data(), width}, {g.data(), width}, result.log_sum_exp.data(),
      {.q = dq.data(), .k = dk.data(), .v = dv.data(), .q_stride = width, .k_stride = width, .v_stride = width}, mask, arrays);
  return {std::move(dq), std::move(dk), std::move(dv)};
}

}  // namespace detail

namespace operations {

/// softmax(q kᵀ / √width) v of each head over the keys that the mask leaves: q [heads, tokens, width], k and v [heads, keys,
/// width], placed alike, whole or cut along dim 0. A query without keys gets 0. If tokens != keys, `mask` is {.causal = false}.
/// Returns {output, log_sum_exp}. Throws ShapeError. Numerics: as kernels::attention_forward. No communication.
template <AnyTensor X>
auto attention(const X& q, const X& k, const X& v, const AttentionMask& mask = {}) {
  return detail::attended(q, k, v, mask, kernels::MaskArrays<accumulate_t<typename X::value_type>>{});
}
/// The same, with a mask of one's own beside the pattern: `hidden` [heads or 1, tokens or 1, keys] holds std::uint8_t, 0 for a
/// key that is not seen, or numbers in accumulate_t that are added to the scaled scores. It has no gradient.
template <AnyTensor X, AnyTensor M>
auto attention(const X& q, const X& k, const X& v, const AttentionMask& mask, const M& hidden) {
  detail::require_attention(q, k, v, mask);
  return detail::attended(q, k, v, mask, detail::mask_arrays(q, k, hidden));
}

/// The gradients of q, k and v, given the result of attention, the gradient g of its output, and its mask. No communication.
template <AnyTensor X, AnyTensor L, AnyTensor G>
auto attention_gradient(const X& q, const X& k, const X& v, const Attended<X, L>& result, const G& g,
                        const AttentionMask& mask = {}) {
  return detail::attended_gradient(q, k, v, result, g, mask, kernels::MaskArrays<accumulate_t<typename X::value_type>>{});
}
template <AnyTensor X, AnyTensor L, AnyTensor G, AnyTensor M>
auto attention_gradient(const X& q, const X& k, const X& v, const Attended<X, L>& result, const G& g, const AttentionMask& mask,
                        const M& hidden) {
  detail::require_attention(q, k, v, mask);
  return detail::attended_gradient(q, k, v, result, g, mask, detail::mask_arrays(q, k, hidden));
}

}  // namespace operations

namespace detail {

/// Keys of earlier tokens are in the cache of the layer Attention, and this operation would not see them.
template <class C, class X>
void refuse_cache(const Variable<C, X>& q) {
  if (q.context().env.cached != nullptr)
    throw_error<UsageError>(
        {"decode: this model calls the operation attention, which keeps no keys and values of earlier tokens: "
         "use the layer Attention, or model.logits of the whole sequence"});
}

/// Attention in a Module's forward; its three gradients are made together. M: the tensor of the mask, or Nothing.
template <class Context, class X, class R, class M>
struct RecordedAttention : TapeStep<Context>, ValueNode<X> {
  RecordedAttention(const Variable<Context, X>& of_q, const Variable<Context, X>& of_k, const Variable<Context, X>& of_v,
                    R&& done, const AttentionMask& pattern, const M& own)
      : nodes{of_q.node(), of_k.node(), of_v.node()},
        q(of_q.value()),
        k(of_k.value()),
        v(of_v.value()),
        result(std::move(done)),
        mask(pattern),
        hidden(own) {}
  void apply(Tape<Context>& tape) {
    if (!*this) return;
    const auto g = this->take();
    auto [dq, dk, dv] = [&] {
      if constexpr (std::is_same_v<M, Nothing>) return attention_gradient(q, k, v, result, g, mask);
      else return attention_gradient(q, k, v, result, g, mask, hidden);
    }();
    if (nodes[0] != nullptr) nodes[0]->add(tape.context(), std::move(dq));
    if (nodes[1] != nullptr) nodes[1]->add(tape.context(), std::move(dk));
    if (nodes[2] != nullptr) nodes[2]->add(tape.context(), std::move(dv));
  }
  ValueNode<X>* nodes[3];
  X q, k, v;
  R result;
  AttentionMask mask;
  M hidden;
};

template <class C, class X, class R, class M>
Variable<C, X> record_attention(const Variable<C, X>& q, const Variable<C, X>& k, const Variable<C, X>& v, R&& result,
                                const AttentionMask& mask, const M& hidden) {
  X y = result.output;
  if (!q.tape().records() || !(q.has_gradient() || k.has_gradient() || v.has_gradient())) return {std::move(y), q.tape()};
  auto& node = q.tape().template record<RecordedAttention<C, X, std::remove_cvref_t<R>, M>>(q, k, v, std::forward<R>(result),
                                                                                            mask, hidden);
  return {std::move(y), &node, q.tape()};
}

}  // namespace detail

namespace operations {

/// The same on Variables: the output alone, [heads, tokens, width]. The mask of one's own is a constant.
template <class C, class X>
auto attention(const Variable<C, X>& q, const Variable<C, X>& k, const Variable<C, X>& v, const AttentionMask& mask = {}) {
  detail::refuse_cache(q);
  return detail::record_attention(q, k, v, attention(q.value(), k.value(), v.value(), mask), mask, Nothing());
}
template <class C, class X, class M>
auto attention(const Variable<C, X>& q, const Variable<C, X>& k, const Variable<C, X>& v, const AttentionMask& mask,
               const Variable<C, M>& hidden) {
  detail::refuse_cache(q);
  return detail::record_attention(q, k, v, attention(q.value(), k.value(), v.value(), mask, hidden.value()), mask,
                                  hidden.value());
}

}  // namespace operations

}  // namespace weft
