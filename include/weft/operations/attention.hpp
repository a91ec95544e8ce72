// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention as an operation on [heads, tokens, width], for layers that make queries, keys and values in their own way. Dim 0 is
// any number of heads that do not see each other (heads of samples, too), so an axis may cut it. The layer nn/attention.hpp does
// without this order of dims, shares key-value heads and goes over cp.
//
//   const auto seen = attention(q, k, v, {.causal = false}, bias);   // bias [heads, 1, keys], added to the scores
//   auto [dq, dk, dv] = attention_gradient(q, k, v, seen, g, {.causal = false}, bias);
//   auto d_bias = attention_mask_gradient(q, k, v, seen, g, {.causal = false}, bias);

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/kernels/attention.hpp>
#include <weft/kernels/attention_mask_gradient.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/reductions.hpp>
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
  require_dims("attention", q, 3);
  require_dims("attention", k, 3);
  if (!(k.shape() == v.shape()) || q.shape()[0] != k.shape()[0] || q.shape()[2] != k.shape()[2])
    throw_error<ShapeError>({call_text("attention", {q, k, v}),
                             ": expected query [heads, tokens, width], key [heads, keys, width] "
                             "and a value like the key"});
  if (q.shape()[1] != k.shape()[1] && (mask.causal || mask.window != 0))
    throw_error<ShapeError>({call_text("attention", {q, k, v}), ": ", q.shape()[1], " queries and ", k.shape()[1],
                             " keys, but causal and a window go by positions, which only a sequence beside itself has; take "
                             "{.causal = false} and a mask"});
}

// Whether an axis that cuts the mask cuts it along dim 0, and X too.
template <class X, class M>
inline constexpr bool mask_fits = false;
template <class X, class T, class E, class... P>
inline constexpr bool mask_fits<X, Tensor<T, E, P...>> =
    ((kind_of<P> != Kind::partial &&
      (shard_dim<P> < 0 || (shard_dim<P> == 0 && shard_dim<placement_t<X, typename P::axis>> == 0))) &&
     ...);

// The scores' gradient on one axis, summed over the heads that share the mask: X is that of queries, M that of the mask.
template <class X, class M>
struct MaskGradientRule {
  using type = std::conditional_t<
      shard_dim<M> == 0, M,
      std::conditional_t<kind_of<X> == Kind::invariant, Invariant<typename X::axis>, Partial<typename X::axis>>>;
};
template <class X, class M>
struct MaskGradient : RefusedOperands<X, with_scalar_t<M, typename X::value_type>> {
  using type = gradient_t<M>;
};
template <class T, class U, class E, class... PX, class... PM>
requires(std::is_same_v<Axes<typename PX::axis...>, Axes<typename PM::axis...>>) struct MaskGradient<Tensor<T, E, PX...>,
                                                                                                     Tensor<U, E, PM...>> {
  using type = Tensor<U, E, typename MaskGradientRule<PX, PM>::type...>;
};

/// A tensor of the mask, as arrays of the kernel. M: uint8 (0 hides), or accumulate_t of the values (added to scores).
template <class X, class M>
auto mask_arrays(const X& q, const X& k, const M& mask) {
  using A = accumulate_t<typename X::value_type>;
  constexpr bool boolean = std::is_same_v<typename M::value_type, std::uint8_t>;
  static_assert(boolean || std::is_same_v<typename M::value_type, A>,
                "weft: attention's mask holds std::uint8_t, 0 for a hidden key, or numbers that are added to the scores, in "
                "accumulate_t of the values (float for bfloat16 and float, double for double)");
  static_assert(
      mask_fits<X, M>,
      "weft: attention's mask is whole, or cut along dim 0 as the heads are: bring it there, to<Replicated<axis>>(mask), "
      "on tensors (context, mask)");
  const std::size_t heads = q.shape()[0], queries = q.shape()[1], keys = k.shape()[1];
  // A mask of three dims is that of one head of so many samples.
  const Shape& given = mask.shape();
  const Shape shape = given.rank() == 3 ? Shape{given[0], 1, given[1], given[2]} : given;
  const bool fits = shape.rank() == 4 && shape[3] == keys && (shape[2] == 1 || shape[2] == queries);
  const bool shared = fits && shape[0] == 1 && !sharded_along<M, 0>;  // by all samples
  const std::size_t group = !fits || shape[0] == 0 ? 0 : shared ? shape[1] : given.rank() == 3 ? 1 : heads / shape[0];
  if (group == 0 || (shape[1] != 1 && shape[1] != group) || (shared ? heads % group != 0 : heads != shape[0] * group))
    throw_error<ShapeError>({call_text("attention", {q, k, mask}), ": expected a mask [", heads, " or 1, ", queries, " or 1, ",
                             keys,
                             "]: of heads, queries and keys; 1 where all have the same; or four dims, of the samples and their "
                             "heads, whose product is ",
                             heads, ", queries and keys"});
  kernels::MaskArrays<A> arrays;
  if constexpr (boolean) arrays.visible = mask.data();
  else if constexpr (std::is_same_v<typename M::value_type, A>) arrays.added = mask.data();
  arrays.query_step = shape[2] == 1 ? 0 : keys;
  arrays.group = group;
  arrays.member_step = shape[1] == 1 ? 0 : shape[2] * keys;
  arrays.sequence_step = shared ? 0 : shape[1] * shape[2] * keys;
  return arrays;
}

template <class X>
kernels::AttentionExtents attention_extents(const X& q, const X& k) {
  return {.sequences = q.shape()[0], .length = q.shape()[1], .head_width = q.shape()[2], .keys = k.shape()[1]};
}
template <class X>
auto attention_operands(const X& q, const X& k, const X& v) {
  const std::size_t width = q.shape()[2];
  return kernels::AttentionOperands<const typename X::value_type>{
      .q = q.data(), .k = k.data(), .v = v.data(), .q_stride = width, .k_stride = width, .v_stride = width};
}

template <class X, class A>
auto attended(const X& q, const X& k, const X& v, const AttentionMask& mask, const kernels::MaskArrays<A>& arrays) {
  using T = typename X::value_type;
  require_attention(q, k, v, mask);
  const std::size_t width = q.shape()[2];
  using L = typename Rescalar<X, A>::type;
  operations::Attended<X, L> result{X(q.device(), q.shape()), L(q.device(), {q.shape()[0], q.shape()[1]})};
  kernels::attention_forward<T>(q.device(), attention_extents(q, k), attention_operands(q, k, v), {result.output.data(), width},
                                result.log_sum_exp.data(), mask, arrays);
  return result;
}

template <class X, class R, class G, class A>
std::tuple<gradient_t<X>, gradient_t<X>, gradient_t<X>> attended_gradient(const X& q, const X& k, const X& v, const R& result,
                                                                          const G& g, const AttentionMask& mask,
                                                                          const kernels::MaskArrays<A>& arrays) {
  using T = typename X::value_type;
  require_gradient_of<X, G>();
  require_attention(q, k, v, mask);
  require_same_shape("attention_gradient", result.output, g);
  using D = gradient_t<X>;
  const std::size_t width = q.shape()[2];
  D dq(q.device(), q.shape()), dk(q.device(), k.shape()), dv(q.device(), v.shape());
  kernels::attention_backward<T>(
      q.device(), attention_extents(q, k), attention_operands(q, k, v), {result.output.data(), width}, {g.data(), width},
      result.log_sum_exp.data(),
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
/// The same, with a mask beside the pattern: `hidden` [heads or 1, tokens or 1, keys] holds std::uint8_t, 0 for a key that is not
/// seen, or numbers in accumulate_t that are added to the scaled scores. It is whole, or cut along dim 0 as the heads are. If
/// q's dim 0 is samples * heads, it may be [samples or 1, heads or 1, tokens or 1, keys].
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

/// The gradient of numbers that are added to the scores, summed over the heads and queries that share them, and 0 for hidden
/// keys. On each axis it is cut as the mask, else Invariant beside Invariant heads and Partial beside others. In accumulate_t,
/// added in the order of heads and queries. No communication.
template <AnyTensor X, AnyTensor L, AnyTensor G, AnyTensor M>
auto attention_mask_gradient(const X& q, const X& k, const X& v, const Attended<X, L>& result, const G& g,
                             const AttentionMask& mask, const M& added) {
  using T = typename X::value_type;
  require_gradient_of<X, G>();
  detail::require_attention(q, k, v, mask);
  detail::require_same_shape("attention_mask_gradient", result.output, g);
  const auto arrays = detail::mask_arrays(q, k, added);
  typename detail::MaskGradient<X, M>::type d_added(q.device(), added.shape());
  if constexpr (std::is_same_v<typename M::value_type, accumulate_t<T>>) {
    const std::size_t width = q.shape()[2];
    kernels::attention_mask_gradient<T>(q.device(), detail::attention_extents(q, k), detail::attention_operands(q, k, v),
                                        {result.output.data(), width}, {g.data(), width}, result.log_sum_exp.data(),
                                        d_added.data(), mask, arrays);
  } else {
    detail::require_real<typename M::value_type>();
  }
  return d_added;
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

// The mask of RecordedAttention: none, bytes, which have no gradient, or numbers that are added to the scores.
struct NoMask {
  static constexpr bool real = false;
  bool wanted() const { return false; }
  std::tuple<> operands() const { return {}; }
};
template <class M>
struct GivenMask {
  static constexpr bool real = Real<typename M::value_type>;
  ValueNode<M>* node;
  M values;
  bool wanted() const { return real && node != nullptr; }
  std::tuple<M> operands() const { return {values}; }
};

/// Attention in a Module's forward; the gradients of q, k and v are made together.
template <class Context, class X, class R, class Mask>
struct RecordedAttention : TapeStep, ValueNode<X> {
  RecordedAttention(const Variable<Context, X>& of_q, const Variable<Context, X>& of_k, const Variable<Context, X>& of_v,
                    R&& done, const AttentionMask& of, const Mask& given)
      : nodes{of_q.node(), of_k.node(), of_v.node()},
        q(of_q.value()),
        k(of_k.value()),
        v(of_v.value()),
        result(std::move(done)),
        pattern(of),
        mask(given) {}
  void apply(Tape& tape) {
    if (!*this) return;
    const Context& context = tape.context().as<Context>();
    const auto g = this->take();
    if constexpr (Mask::real)
      if (mask.wanted()) mask.node->add(context, attention_mask_gradient(q, k, v, result, g, pattern, mask.values));
    if (nodes[0] == nullptr && nodes[1] == nullptr && nodes[2] == nullptr) return;
    auto [dq, dk, dv] = std::apply(
        [&](const auto&... given) { return attention_gradient(q, k, v, result, g, pattern, given...); }, mask.operands());
    if (nodes[0] != nullptr) nodes[0]->add(context, std::move(dq));
    if (nodes[1] != nullptr) nodes[1]->add(context, std::move(dk));
    if (nodes[2] != nullptr) nodes[2]->add(context, std::move(dv));
  }
  ValueNode<X>* nodes[3];
  X q, k, v;
  R result;
  AttentionMask pattern;
  Mask mask;
};

// Refuses attention inside of grad (operations/grad.hpp).
template <class X>
AlreadyRefused refused_attention() {
  static_assert(!Nested<X>,
                "weft: grad(f, x): f calls attention, which has no second derivative: write its formula, "
                "batched_matmul(softmax<2>(batched_matmul_transposed(q, k) * scale + mask), v)");
  return {};
}
template <class C, class X, class Mask>
Variable<C, X> record_attention(const Variable<C, X>& q, const Variable<C, X>& k, const Variable<C, X>& v,
                                const AttentionMask& pattern, const Mask& mask) {
  refuse_cache(q);
  auto result = std::apply([&](const auto&... given) { return attention(q.value(), k.value(), v.value(), pattern, given...); },
                           mask.operands());
  using R = decltype(result);
  X y = result.output;
  if (!q.tape().records() || !(q.has_gradient() || k.has_gradient() || v.has_gradient() || mask.wanted()))
    return {std::move(y), q.tape()};
  auto& node = q.tape().template record<RecordedAttention<C, X, R, Mask>>(q, k, v, std::move(result), pattern, mask);
  return {std::move(y), &node, q.tape()};
}

}  // namespace detail

namespace operations {

/// The same on Variables: only the output, [heads, tokens, width]. A mask of numbers that are added to the scores, in x's
/// element type or accumulate_t of it, has a gradient, a Parameter's too.
template <class C, class X>
auto attention(const Variable<C, X>& q, const Variable<C, X>& k, const Variable<C, X>& v, const AttentionMask& mask = {}) {
  if constexpr (detail::Nested<X>) return detail::refused_attention<X>();
  else return detail::record_attention(q, k, v, mask, detail::NoMask());
}
template <class C, class X, class M>
auto attention(const Variable<C, X>& q, const Variable<C, X>& k, const Variable<C, X>& v, const AttentionMask& mask,
               const Variable<C, M>& hidden) {
  if constexpr (detail::Nested<X>) {
    return detail::refused_attention<X>();
  } else {
    using T = typename X::value_type;
    using A = accumulate_t<T>;
    if constexpr (std::is_same_v<typename M::value_type, T> && !std::is_same_v<T, A>)
      return attention(q, k, v, mask, cast<A>(hidden));
    else return detail::record_attention(q, k, v, mask, detail::GivenMask<M>{hidden.node(), hidden.value()});
  }
}
template <class C, class X, Placement... R>
auto attention(const Variable<C, X>& q, const Variable<C, X>& k, const Variable<C, X>& v, const AttentionMask& mask,
               const Parameter<R...>& hidden) {
  return attention(q, k, v, mask, beside(q, hidden));
}
template <class C, class X, Placement... R>
detail::AlreadyRefused attention(const Variable<C, X>&, const Variable<C, X>&, const Variable<C, X>&, const AttentionMask&,
                                 const Parameter<R...>&&) {
  return detail::refused_temporary<X>();
}

}  // namespace operations

}  // namespace weft
