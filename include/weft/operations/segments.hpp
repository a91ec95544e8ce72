// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums, means, largest rows and softmax over segments of rows, such as the edges that end at one node of a graph. Row i belongs
// to the segment ids[i]; ids need no order, and a segment may have no rows. With index_select these are all that message passing
// needs.
//
//   auto messages = mlp(concat<1>(index_select(nodes, from), index_select(nodes, to)));   // [edges, width]
//   nodes = nodes + scatter_add(messages, to, nodes.shape()[0]);                           // [nodes, width]
//
// The ids of values that an axis of samples, such as dp, cuts count the segments of this rank's samples, as in index_select; with
// local_ids those of any axis do. Without it, another axis that cuts the rows leaves each rank a term of every segment: the sum
// is Partial. Numerics: the rows of a segment are combined in their order, in accumulate_t, with the same bits for any number of
// threads; on GPUs in an order that depends only on the ids (kernels/detail/token_order.hpp).

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <weft/autograd/variable.hpp>
#include <weft/kernels/functions.hpp>
#include <weft/kernels/segments.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/operations/elementwise.hpp>
#include <weft/operations/index_select.hpp>
#include <weft/operations/rules.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

// One axis: `spread` if each rank has some rows of every segment.
template <class PX, class PI, class L>
struct SegmentRule {
  static constexpr bool local = counts_local_rows<PX, PI, L>, spread = !local && shard_dim<PX> == 0 && shard_dim<PI> == 0,
                        fits = local || spread || (shard_dim<PX> != 0 && is_whole<PI>);
  using type = std::conditional_t<spread, Partial<typename PX::axis>, PX>;
};
template <class A>
struct SegmentRule<Shard<A, 0>, Shard<A, 0>, GhostIds<A>> {
  static constexpr bool local = true, spread = false, fits = true;
  using type = GhostTerms<A>;
};
template <class X, class I, class L>
struct Segmented {
  static constexpr bool fits = false, spread = false, partial = false;
  using type = X;
};
template <class T, class I, class E, class... PX, class... PI, class L>
requires(std::is_same_v<Axes<typename PX::axis...>, Axes<typename PI::axis...>>) struct Segmented<Tensor<T, E, PX...>,
                                                                                                  Tensor<I, E, PI...>, L> {
  static constexpr bool fits = (SegmentRule<PX, PI, L>::fits && ...), spread = (SegmentRule<PX, PI, L>::spread || ...),
                        partial = ((kind_of<PX> == Kind::partial) || ...);
  using type = Tensor<T, E, typename SegmentRule<PX, PI, L>::type...>;
};

template <class S>
constexpr bool require_segments_fit() {
  static_assert(S::fits,
                "weft: an operation over segments takes values and ids of the same axes, both cut along dim 0 or the ids whole: "
                "cut the ids as the rows, to<Shard<axis, 0>>(ids), or gather the rows, to<Invariant<axis>>(x)");
  return S::fits;
}
template <class S>
constexpr bool require_whole_segments() {
  static_assert(
      !S::fits || !S::spread,
      "weft: a mean, maximum or softmax over segments needs all rows of a segment on one rank, but an axis cuts the rows: "
      "gather them, to<Invariant<axis>>(x), or state that each rank has whole segments, with local_ids as last argument; "
      "the sum, scatter_add, is Partial");
  return require_segments_fit<S>() && !S::spread;
}
template <class S>
constexpr bool require_values() {
  static_assert(!S::partial,
                "weft: a maximum or softmax over segments of a Partial tensor, whose ranks hold only terms: reduce it first, "
                "to<Invariant<axis>>(x), on tensors (context, x)");
  return !S::partial;
}
template <class S>
constexpr bool nonlinear_segments_fit() {
  return S::fits && !S::spread && !S::partial;
}

// The ids of x's rows as std::int32_t, each below `segments`.
template <class X, class I>
auto segment_ids(const char* operation, const X& x, const I& ids, std::size_t segments) {
  if (x.shape().rank() == 0 || ids.shape().rank() != 1 || ids.shape()[0] != x.shape()[0])
    throw_error<ShapeError>({call_text(operation, {x, ids}), ": expected one id for each row"});
  require_counted_once(operation, x.shape(), 0, Of::values);
  return ids_of(ids, segments, {operation, "id", " at ", " segments"});
}
inline Shape segments_shape(const Shape& x, std::size_t segments) {
  Shape out = x;
  out[0] = segments;
  return out;
}
template <class X, class N>
kernels::Segments segments_of(const X& x, const N& ids, std::size_t segments) {
  return {ids.data(), x.shape()[0], row_width(x.shape()), segments};
}

// The number of rows of each segment.
template <class A, class N>
with_scalar_t<N, A> counts_of(const N& ids, std::size_t segments) {
  const with_scalar_t<N, A> ones(ids.device(), ids.shape());
  kernels::fill(ids.device(), ones.size(), ones.data(), A(1));
  return sums_by_id<with_scalar_t<N, A>>({segments}, ids, ones);
}
// Sums over their segments' counts, in the element type of Y.
template <class Y, class S, class K>
Y divided_by_counts(const S& sums, const K& counts) {
  using A = typename K::value_type;
  const auto wide = rounded_sums<with_scalar_t<S, A>>(sums);
  with_scalar_t<S, A> means(sums.device(), sums.shape());
  kernels::divide_by_counts(sums.device(), sums.shape()[0], row_width(sums.shape()), static_cast<const A*>(wide.data()),
                            static_cast<const A*>(counts.data()), means.data());
  return rounded_sums<Y>(means);
}

}  // namespace detail

namespace operations {

/// Row i of x [rows, ...] added to row ids[i] of the result [segments, ...], which is 0 in a segment without rows; ids [rows] are
/// whole numbers. Placements: ids whole, and x Invariant, Replicated, Partial or cut along another dim, the result as x; both
/// cut along dim 0, see above. Throws UsageError with the first id that is no segment (on GPUs such a row is left out),
/// ShapeError unless each row has an id. Gradient: index_select(g, ids). PyTorch: zeros(segments).index_add(0, ids, x).
template <AnyTensor X, AnyTensor I, detail::IdScope L = CommonIds>
auto scatter_add(const X& x, const I& ids, std::size_t segments, L = {}) {
  using S = detail::Segmented<X, I, L>;
  if constexpr (!detail::require_segments_fit<S>()) {
    return x;
  } else {
    using Y = typename S::type;
    const auto wanted = detail::segment_ids("scatter_add", x, ids, segments);
    return detail::rounded_sums<Y>(detail::sums_by_id<Y>(detail::segments_shape(x.shape(), segments), wanted, x));
  }
}
/// scatter_add, by the name of its siblings.
template <AnyTensor X, AnyTensor I, detail::IdScope L = CommonIds>
auto segment_sum(const X& x, const I& ids, std::size_t segments, L scope = {}) {
  return scatter_add(x, ids, segments, scope);
}

/// The mean of the rows of each segment, 0 of none; placements and errors as scatter_add, but each rank has whole segments.
template <AnyTensor X, AnyTensor I, detail::IdScope L = CommonIds>
auto segment_mean(const X& x, const I& ids, std::size_t segments, L = {}) {
  using S = detail::Segmented<X, I, L>;
  if constexpr (!detail::require_whole_segments<S>()) {
    return x;
  } else {
    using Y = typename S::type;
    const auto wanted = detail::segment_ids("segment_mean", x, ids, segments);
    const auto sums = detail::sums_by_id<Y>(detail::segments_shape(x.shape(), segments), wanted, x);
    return detail::divided_by_counts<Y>(sums, detail::counts_of<typename decltype(sums)::value_type>(wanted, segments));
  }
}
/// The gradient of x, given that of segment_mean(x, ids, segments): each row has that of its segment, over the segment's rows.
template <AnyTensor I, AnyTensor G, detail::IdScope L = CommonIds>
auto segment_mean_gradient(const I& ids, const G& g, L scope = {}) {
  const std::size_t segments = g.shape()[0];
  const auto wanted = detail::ids_of(ids, segments, {"segment_mean_gradient", "id", " at ", " segments"});
  const auto counts = detail::counts_of<accumulate_t<typename G::value_type>>(wanted, segments);
  return index_select(detail::divided_by_counts<G>(g, counts), ids, scope);
}

/// The largest element of each segment and column, and its row (std::int32_t, the first of equal ones); 0 and -1 in a segment
/// without rows. A NaN counts as the largest. x is not Partial, and each rank has whole segments. Errors as scatter_add.
template <AnyTensor X, AnyTensor I, detail::IdScope L = CommonIds>
auto segment_max_and_place(const X& x, const I& ids, std::size_t segments, L = {}) {
  using S = detail::Segmented<X, I, L>;
  if constexpr (!detail::require_whole_segments<S>() || !detail::require_values<S>()) {
    return std::pair{x, x};
  } else {
    const auto wanted = detail::segment_ids("segment_max", x, ids, segments);
    const Shape shape = detail::segments_shape(x.shape(), segments);
    std::pair out{X(x.device(), shape), with_scalar_t<X, std::int32_t>(x.device(), shape)};
    kernels::segment_max<typename X::value_type>(x.device(), detail::segments_of(x, wanted, segments), x.data(), out.first.data(),
                                                 out.second.data());
    return out;
  }
}
template <AnyTensor X, AnyTensor I, detail::IdScope L = CommonIds>
auto segment_max(const X& x, const I& ids, std::size_t segments, L scope = {}) {
  return segment_max_and_place(x, ids, segments, scope).first;
}
/// The gradient of x [rows, ...]: g where segment_max found its element, 0 elsewhere.
template <AnyTensor I, AnyTensor N, AnyTensor G>
G segment_max_gradient(const I& ids, const N& places, const G& g) {
  const std::size_t segments = g.shape()[0];
  const auto wanted = detail::ids_of(ids, segments, {"segment_max_gradient", "id", " at ", " segments"});
  G out(g.device(), detail::segments_shape(g.shape(), ids.size()));
  kernels::place_segments<typename G::value_type>(g.device(), detail::segments_of(out, wanted, segments), g.data(), places.data(),
                                                  out.data());
  return out;
}

/// Softmax over the rows of each segment, column by column: y[i] = exp(x[i] - top) / sum of the segment's, with its largest
/// element as top. Placed as x, which is not Partial; each rank has whole segments. Errors as scatter_add.
template <AnyTensor X, AnyTensor I, detail::IdScope L = CommonIds>
X segment_softmax(const X& x, const I& ids, std::size_t segments, L scope = {}) {
  using S = detail::Segmented<X, I, L>;
  if constexpr (!detail::require_whole_segments<S>() || !detail::require_values<S>()) {
    return x;
  } else {
    using T = typename X::value_type;
    using A = accumulate_t<T>;
    const auto wanted = detail::segment_ids("segment_softmax", x, ids, segments);
    const auto of = detail::segments_of(x, wanted, segments);
    const auto top = segment_max(x, wanted, segments, scope);
    const with_scalar_t<X, A> powers(x.device(), x.shape());
    kernels::map_segments<A, T, T>(x.device(), of, x.data(), top.data(), powers.data(), kernels::ExpOfDifference());
    const auto totals = detail::sums_by_id<X>(top.shape(), wanted, powers);
    X out(x.device(), x.shape());
    kernels::map_segments<T, A, A>(x.device(), of, powers.data(), totals.data(), out.data(), kernels::QuotientBySegment());
    return out;
  }
}
/// The gradient of x, given y = segment_softmax(x, ids, segments) and its gradient: y (g - the segment's sum of y g).
template <AnyTensor Y, AnyTensor I, AnyTensor G>
G segment_softmax_gradient(const Y& y, const I& ids, std::size_t segments, const G& g) {
  require_gradient_of<Y, G>();
  using T = typename G::value_type;
  using A = accumulate_t<T>;
  detail::require_same_shape("segment_softmax_gradient", y, g);
  const auto wanted = detail::ids_of(ids, segments, {"segment_softmax_gradient", "id", " at ", " segments"});
  const auto totals = detail::sums_by_id<G>(detail::segments_shape(g.shape(), segments), wanted, times(g, y));
  G differences(g.device(), g.shape());
  kernels::map_segments<T, T, A>(g.device(), detail::segments_of(g, wanted, segments), g.data(), totals.data(),
                                 differences.data(), kernels::LessSegment());
  return times(differences, y);
}

/// The same on Variables; the ids are a constant.
template <class C, class X, class I, detail::IdScope L = CommonIds>
auto scatter_add(const Variable<C, X>& x, const Variable<C, I>& ids, std::size_t segments, L scope = {}) {
  auto y = scatter_add(x.value(), ids.value(), segments, scope);
  if constexpr (!detail::Segmented<X, I, L>::fits) return detail::AlreadyRefused();
  else
    return detail::record_by_gradient(x, std::move(y), [ids = ids.value()](const auto& g) { return index_select(g, ids, L()); });
}
template <class C, class X, class I, detail::IdScope L = CommonIds>
auto segment_sum(const Variable<C, X>& x, const Variable<C, I>& ids, std::size_t segments, L scope = {}) {
  return scatter_add(x, ids, segments, scope);
}
template <class C, class X, class I, detail::IdScope L = CommonIds>
auto segment_mean(const Variable<C, X>& x, const Variable<C, I>& ids, std::size_t segments, L scope = {}) {
  using S = detail::Segmented<X, I, L>;
  auto y = segment_mean(x.value(), ids.value(), segments, scope);
  if constexpr (!S::fits || S::spread) return detail::AlreadyRefused();
  else
    return detail::record_by_gradient(x, std::move(y),
                                      [ids = ids.value()](const auto& g) { return segment_mean_gradient(ids, g, L()); });
}
template <class C, class X, class I, detail::IdScope L = CommonIds>
auto segment_max(const Variable<C, X>& x, const Variable<C, I>& ids, std::size_t segments, L scope = {}) {
  auto found = segment_max_and_place(x.value(), ids.value(), segments, scope);
  if constexpr (!detail::nonlinear_segments_fit<detail::Segmented<X, I, L>>()) return detail::AlreadyRefused();
  else
    return detail::record_by_gradient(x, std::move(found.first), [ids = ids.value(), places = found.second](const auto& g) {
      return segment_max_gradient(ids, places, g);
    });
}
template <class C, class X, class I, detail::IdScope L = CommonIds>
auto segment_softmax(const Variable<C, X>& x, const Variable<C, I>& ids, std::size_t segments, L scope = {}) {
  auto y = segment_softmax(x.value(), ids.value(), segments, scope);
  if constexpr (!detail::nonlinear_segments_fit<detail::Segmented<X, I, L>>()) return detail::AlreadyRefused();
  else
    return detail::record_by_result(x, std::move(y), [ids = ids.value(), segments](const auto& y, const auto& g) {
      return segment_softmax_gradient(y, ids, segments, g);
    });
}

}  // namespace operations

}  // namespace weft
