// SPDX-License-Identifier: Apache-2.0
#pragma once
// Broadcasting of the operands of + - * /, maximum, minimum, pow, `where` and comparisons: shapes are aligned at their last dims,
// and a dim of one element, or one that is missing, is repeated. The gradient of an operand is summed over the dims in which it
// was repeated.
//
// An axis may cut a dim of both operands, which is then aligned and not repeated, or of one, if the other is Replicated on that
// axis and has one element there or no such dim. Types do not have the number of dims, so it is compared with them at run time:
// the operand that is cut beside a Replicated one has all dims of the result.
//
//   images * beside(images, gain)             // [samples, channels, height, width] by [channels, 1, 1]
//   reshape(x, {n, 1, 3}) - reshape(x, {n, 3})   // [n, n, 3]: the differences of all pairs

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include <weft/engine/operand.hpp>
#include <weft/kernels/along_dim.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/expand.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>

namespace weft::detail {

// The error for two operands that no operation takes together. Instantiated only if their types do not fit.
template <class X, class Y>
struct RefusedOperands;
template <class T, class U, class E, class F, class... PX, class... PY>
struct RefusedOperands<Tensor<T, E, PX...>, Tensor<U, F, PY...>> {
  static constexpr bool fits = false, types = std::is_same_v<T, U>, memory = std::is_same_v<E, F>,
                        as_many = sizeof...(PX) == sizeof...(PY);
  static_assert(
      types,
      "weft: the operands hold different element types, such as double beside bfloat16: layers compute in Context::scalar, so "
      "make the tensor in it, Tensor<typename Context::scalar, ...>, or convert it on purpose, cast<T>(x)");
  static_assert(memory || !types,
                "weft: the operands lie in the memory of different devices: copy one to the other's device first");
  static_assert(as_many || !types || !memory,
                "weft: the operands name different axes: each tensor has a placement on every axis in force; take a "
                "parameter as parameter.for_operand(x), and make a tensor with x's axes");
  static_assert(
      std::is_same_v<Axes<typename PX::axis...>, Axes<typename PY::axis...>> || !as_many || !types || !memory,
      "weft: the operands name their axes in different order, or different ones: every tensor names them in the order of the "
      "wrappers, outermost first; take a parameter as parameter.for_operand(x), and make a tensor with x's axes");
};

/// The operation: which of its operands may be Partial depends on it, `other` takes none.
enum class Arithmetic { sum, product, quotient, other };

/// The operands' placements on one axis.
template <Arithmetic A, class X, class Y>
struct BroadcastAxis {
  static constexpr int x_dim = shard_dim<X>, y_dim = shard_dim<Y>;  ///< the dims that the axis cuts, -1 for none
  static constexpr bool x_terms = kind_of<X> == Kind::partial, y_terms = kind_of<Y> == Kind::partial;
  static constexpr bool x_whole = kind_of<X> == Kind::replicated, y_whole = kind_of<Y> == Kind::replicated;
  static constexpr bool terms =
      A == Arithmetic::sum ? x_terms && y_terms
                           : (A != Arithmetic::other && x_terms && y_whole) || (A == Arithmetic::product && x_whole && y_terms);
  static constexpr bool both = x_dim >= 0 && y_dim >= 0, only_x = x_dim >= 0 && y_whole, only_y = x_whole && y_dim >= 0;
  static constexpr bool fits = terms || both || only_x || only_y || (std::is_same_v<X, Y> && !x_terms);
  /// Whether dims of these operands may be repeated.
  static constexpr bool repeats = terms || both || only_x || only_y || (is_whole<X> && is_whole<Y>);
  using type = std::conditional_t<terms, Partial<typename X::axis>, std::conditional_t<(x_dim >= y_dim), X, Y>>;
};
/// Halos need equal shapes: rows of two pieces at their places, and the terms of one side times the elements of the other, whose
/// gradient they would be.
template <Arithmetic A, class X, class Y>
requires(overlaps<X> || overlaps<Y>) struct BroadcastAxis<A, X, Y> {
  static constexpr int x_dim = -1, y_dim = -1;
  static constexpr bool both = false, only_x = false, only_y = false, repeats = false;
  static constexpr bool y_terms = A == Arithmetic::product && has_terms<Y> && std::is_same_v<X, dual_t<Y>>,
                        x_terms = (A == Arithmetic::product || A == Arithmetic::quotient) && has_terms<X> &&
                                  std::is_same_v<Y, dual_t<X>>;
  static constexpr bool fits = x_terms || y_terms || (std::is_same_v<X, Y> && (A == Arithmetic::sum || !has_terms<X>));
  using type = std::conditional_t<y_terms, Y, X>;
};

/// The dims that an axis cuts of both operands, -1 for none.
struct CutDims {
  std::string_view axis;
  int x, y;
};

/// The rule of all axes, and the type of the result.
template <Arithmetic A, class X, class Y>
struct Broadcast {
  static constexpr bool operands = false, fits = false;
  using type = X;
};
template <Arithmetic A, class T, class E, class... PX, class... PY>
requires(std::is_same_v<Axes<typename PX::axis...>, Axes<typename PY::axis...>>) struct Broadcast<A, Tensor<T, E, PX...>,
                                                                                                  Tensor<T, E, PY...>> {
  template <class X, class Y>
  using Axis = BroadcastAxis<A, X, Y>;
  static constexpr bool operands = true;
  /// The number of dims that the first operand has more, if an axis cuts both.
  static constexpr bool known = (Axis<PX, PY>::both || ...);
  static constexpr int more = [] {
    int found = 0;
    (void(found = Axis<PX, PY>::both ? Axis<PX, PY>::x_dim - Axis<PX, PY>::y_dim : found), ...);
    return found;
  }();
  static constexpr bool aligned = ((!Axis<PX, PY>::both || Axis<PX, PY>::x_dim - Axis<PX, PY>::y_dim == more) && ...) &&
                                  !(known && more < 0 && (Axis<PX, PY>::only_x || ...)) &&
                                  !(known && more > 0 && (Axis<PX, PY>::only_y || ...));
  static constexpr bool fits = aligned && (Axis<PX, PY>::fits && ...), repeats = (Axis<PX, PY>::repeats && ...);
  /// Whether the operands have the same dims on the same ranks, so that equal shapes need no further check.
  static constexpr bool alike = more == 0 && !((Axis<PX, PY>::only_x || Axis<PX, PY>::only_y) || ...);
  using type = Tensor<T, E, typename Axis<PX, PY>::type...>;
  static constexpr std::array<CutDims, sizeof...(PX)> cuts = {
      CutDims{PX::axis::name, Axis<PX, PY>::x_dim, Axis<PX, PY>::y_dim}...};
};

/// The shape of the result. Throws ShapeError if extents differ and none of them is 1, or if a dim would be repeated that an axis
/// cuts.
Shape broadcast_shape(const char* operation, NamedOperand x, NamedOperand y, std::span<const CutDims> cuts);
/// The layout of the operands' elements in the result.
kernels::Expansion expansion_of(const Shape& result, const Shape& x, const Shape& y);

inline void require_same_shape(const char* operation, NamedOperand a, NamedOperand b) {
  if (!(a.shape() == b.shape())) throw_error<ShapeError>({call_text(operation, {a, b}), ": the shapes differ"});
}

/// The shape of a function of pairs of elements of operands that fit.
template <Arithmetic A, class X, class Y>
Shape shape_of_pairs(const char* operation, const X& x, const Y& y) {
  using B = Broadcast<A, X, Y>;
  if constexpr (!B::repeats) require_same_shape(operation, x, y);
  if constexpr (B::alike)
    if (x.shape() == y.shape()) return x.shape().with_cuts_of(y.shape());
  return broadcast_shape(operation, x, y, B::cuts);
}

/// f(x, y) of each pair of elements of operands that fit; f takes lanes.
template <Arithmetic A, class X, class Y, class F>
auto broadcast(const char* operation, const X& x, const Y& y, F f) {
  typename Broadcast<A, X, Y>::type out(x.device(), shape_of_pairs<A>(operation, x, y));
  kernels::map_expanded<typename X::value_type>(x.device(), expansion_of(out.shape(), x.shape(), y.shape()), x.data(), y.data(),
                                                out.data(), f);
  return out;
}

/// x as a Z of this shape, with its missing dims and dims of one element repeated; x's memory if it has the shape. Throws
/// ShapeError if it cannot be repeated to it.
template <class Z, class X>
Z repeated(const char* operation, const Shape& shape, const X& x) {
  if (x.shape() == shape) return relabel<Z>(x);
  const auto extents = aligned_extents(x.shape()), wanted = aligned_extents(shape);
  for (std::size_t dim = 0; dim < wanted.size(); ++dim)
    if (extents[dim] != 1 && extents[dim] != wanted[dim])
      throw_error<ShapeError>(
          {call_text(operation, {x}), ": the shape is not that of the result, nor repeated to it: ", shape.text()});
  Z out(x.device(), shape);
  kernels::expand<typename X::value_type>(x.device(), extents, wanted, x.data(), out.data());
  return out;
}

/// The dims to sum of an array with the extents of a result, for an operand in which they were repeated: a run of adjacent dims
/// at a time.
struct RepeatedDims {
  std::size_t count = 0;
  kernels::Along runs[Shape::max_rank];
};
RepeatedDims repeated_dims(const Shape& result, const Shape& operand);

/// out [size] = the sums of g over these dims, run by run, in accumulate_t; a copy if there are none.
template <class T, class Exec>
void sum_runs(Device<Exec>& device, const RepeatedDims& repeated, std::size_t size, const T* g, T* out) {
  using A = accumulate_t<T>;
  using Sums = Tensor<A, Exec>;
  if (repeated.count == 0) return copy_rows(device, 1, size, g, size, out, size);
  const auto sums_after = [&](std::size_t run) { return Sums(device, {repeated.runs[run].outer * repeated.runs[run].inner}); };
  Sums sums = sums_after(0);
  kernels::sum_along<T>(device, repeated.runs[0], g, A(1), sums.data());
  for (std::size_t run = 1; run < repeated.count; ++run) {
    const Sums next = sums_after(run);
    kernels::sum_along<A>(device, repeated.runs[run], sums.data(), A(1), next.data());
    sums = next;
  }
  if constexpr (std::is_same_v<A, T>) copy_rows(device, 1, size, static_cast<const T*>(sums.data()), size, out, size);
  else kernels::cast<A, T>(device, size, sums.data(), out);
}

// The placements of the sum over the repeated dims of a gradient, of an operand X.
template <class P, class G>
struct SummedPlacement {
  using type = std::conditional_t<(shard_dim<G> >= 0), std::conditional_t<(shard_dim<P> >= 0), P, Partial<typename P::axis>>, G>;
};
template <class P, class G>
requires(overlaps<G>) struct SummedPlacement<P, G> {
  using type = G;
};
template <class X, class G>
struct SummedGradient;
template <class T, class E, class... PX, class... PG>
struct SummedGradient<Tensor<T, E, PX...>, Tensor<T, E, PG...>> {
  using type = Tensor<T, E, typename SummedPlacement<PX, PG>::type...>;
};

/// The gradient of an operand X of this shape, given that of each element of the result: sums over the dims in which the operand
/// was repeated, in accumulate_t, in an order that depends only on the extents. No communication: over an axis that cuts such a
/// dim the sum is Partial.
template <class X, class G>
gradient_t<X> sum_repeated(const Shape& shape, const G& g) {
  require_gradient_of<X, typename SummedGradient<X, G>::type>();
  if constexpr (std::is_same_v<G, gradient_t<X>>)
    if (g.shape() == shape) return g;
  gradient_t<X> out(g.device(), shape);
  sum_runs(g.device(), repeated_dims(g.shape(), shape), out.size(), static_cast<const typename G::value_type*>(g.data()),
           out.data());
  return out;
}

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/operations/broadcast_impl.hpp>
#endif
