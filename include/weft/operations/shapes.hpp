// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors with their dims in another order, joined or divided. The dims are template arguments, because the dim that an axis cuts
// goes with them: after transpose<1, 2> a Shard<tp, 1> is a Shard<tp, 2>. flatten and unflatten share the elements.
//
//   auto by_heads = transpose<1, 2>(unflatten<1>(x, width));   // [samples, heads * width, n] -> ...

#include <cstddef>
#include <type_traits>
#include <utility>

#include <weft/autograd/tape.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/kernels/permute.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/rules.hpp>
#include <weft/operations/views.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {

inline void require_even(const char* operation, const Shape& shape, std::size_t dim) {
  if (shape.sharding(dim) != DimSharding::even)
    throw_error<LayoutError>({operation, ": dim ", dim, " of ", shape.text(), " is padded, cut by segments or held alike"});
}
template <int... Dims, class X>
auto permuted(const char* operation, const X& x, Permuted<Dims...>) {
  using Rule = Permuted<Dims...>;
  static_assert(Rule::valid, "weft: permute names every dim of the operand once, from 0: permute<0, 2, 1>(x) of three dims");
  const std::size_t rank = x.shape().rank();
  Shape shape = x.shape();
  if constexpr (Rule::valid) {
    for (std::size_t dim = 0; dim < rank; ++dim) {
      const std::size_t from = std::size_t(Rule::dims[dim]);
      if (from >= rank) throw_error<ShapeError>({call_text(operation, {x}), ": there is no dim ", from});
      shape[dim] = x.shape()[from];
      shape.set_sharding(dim, x.shape().sharding(from));
    }
  }
  ruled_t<Rule, X> out(x.device(), shape);
  static_assert(Shape::max_rank == kernels::Permutation::most_dims);
  std::size_t extents[Shape::max_rank] = {};
  for (std::size_t dim = 0; dim < rank; ++dim) extents[dim] = x.shape()[dim];
  if constexpr (Rule::valid)
    kernels::permute(x.device(), kernels::Permutation(rank, extents, Rule::dims.data()),
                     static_cast<const typename X::value_type*>(x.data()), out.data());
  return out;
}
constexpr int exchanged(int dim, int a, int b) { return dim == a ? b : dim == b ? a : dim; }
template <int A, int B>
using Exchanged = Permuted<exchanged(0, A, B), exchanged(1, A, B), exchanged(2, A, B), exchanged(3, A, B), exchanged(4, A, B),
                           exchanged(5, A, B)>;

/// The permutation that undoes another.
template <class Rule, class Indices>
struct InverseOf;
template <int... Dims, std::size_t... I>
struct InverseOf<Permuted<Dims...>, std::index_sequence<I...>> {
  using type = Permuted<Permuted<Dims...>::place_of(int(I))...>;
};

}  // namespace detail

namespace operations {

/// The result's dim d is x's dim Dims[d], for all dims of x. Placement: an axis that cuts a dim cuts it where it has gone;
/// Partial stays. The gradient is permute_back<Dims...>(g).
template <int... Dims, AnyTensor X>
requires(sizeof...(Dims) > 0) auto permute(const X& x) {
  if (x.shape().rank() != sizeof...(Dims))
    throw_error<ShapeError>({detail::call_text("permute", {x}), ": ", x.shape().rank(), " dims, not ", sizeof...(Dims)});
  return detail::permuted("permute", x, detail::Permuted<Dims...>());
}
template <int... Dims, AnyTensor G>
auto permute_back(const G& g) {
  return detail::permuted(
      "permute_back", g,
      typename detail::InverseOf<detail::Permuted<Dims...>, std::make_index_sequence<sizeof...(Dims)>>::type());
}
/// x with dims A and B exchanged. The gradient is transpose<A, B>(g).
template <int A, int B, AnyTensor X>
auto transpose(const X& x) {
  static_assert(A >= 0 && B >= 0 && A < 6 && B < 6, "weft: transpose<a, b> exchanges two dims from 0 to 5");
  detail::require_dim("transpose", x, A < B ? B : A);
  return detail::permuted("transpose", x, detail::Exchanged<A, B>());
}

/// Dims First to Last as one, sharing the elements. An axis may cut First, the outermost, and dims outside. The gradient is
/// reshape-like: unflatten with the extents of dims First + 1 to Last.
template <int First, int Last, AnyTensor X>
auto flatten(const X& x) {
  static_assert(0 <= First && First <= Last, "weft: flatten<first, last> joins the dims from `first` to `last`, first <= last");
  static_assert(
      !detail::cut_between<X, First + 1, Last>,
      "weft: flatten: an axis cuts an inner one of these dims, so that a rank's part of them is no part of the one dim that "
      "they become: move the dim outside first, transpose<a, b>(x), or gather it, to<Invariant<axis>>(x), on tensors (context, "
      "x)");
  detail::require_dim("flatten", x, Last);
  constexpr std::size_t first = std::size_t(First), gone = std::size_t(Last - First);
  Shape shape = x.shape();
  for (std::size_t dim = first + 1; dim <= std::size_t(Last); ++dim) detail::require_even("flatten", x.shape(), dim);
  for (std::size_t dim = first; dim < std::size_t(Last); ++dim) shape = detail::without_dim(shape, first + 1);
  std::size_t joined = 1;
  for (std::size_t dim = first; dim <= std::size_t(Last); ++dim) joined *= x.shape()[dim];
  if (gone != 0) shape[first] = joined;
  return detail::view_of<detail::ruled_t<detail::Flattened<First, Last>, X>>(x, shape);
}

/// Dim `Dim` as several, of which the inner ones have these extents, sharing the elements: [n, 12] as [n, 3, 4] by
/// unflatten<1>(x, 4). An axis that cuts the dim cuts the outermost of them: throws ShapeError unless a rank's part is a multiple
/// of the inner ones. The gradient is flatten<Dim, Dim + number of inner extents>(g).
template <int Dim, AnyTensor X, std::integral... N>
auto unflatten(const X& x, N... inner) {
  static_assert(
      Dim != 0 || !std::is_same_v<placement_t<X, cp>, Shard<cp, 0>>,
      "weft: unflatten<0> of rows that cp cuts: a rank has two chunks of each sequence, which are no whole rows of another "
      "shape: work on [tokens, ...], or gather them, to<Invariant<cp>>(x), on tensors (context, x)");
  detail::require_dim("unflatten", x, Dim);
  constexpr std::size_t at = std::size_t(Dim), more = sizeof...(N);
  const std::size_t extents[] = {std::size_t(inner)..., 1};
  std::size_t product = 1;
  for (std::size_t i = 0; i < more; ++i) product *= extents[i];
  if (x.shape().rank() + more > Shape::max_rank)
    throw_error<ShapeError>(
        {detail::call_text("unflatten", {x}), ": the result would have more than ", Shape::max_rank, " dims"});
  if (product == 0 || x.shape()[at] % product != 0)
    throw_error<ShapeError>({detail::call_text("unflatten", {x}), ": dim ", Dim, " is not a multiple of ", product});
  if (x.shape().sharding(at) == DimSharding::segments)
    throw_error<LayoutError>({"unflatten: dim ", Dim, " of ", x.shape().text(), " is cut by segments"});
  Shape shape = Shape::of_rank(x.shape().rank() + more);
  for (std::size_t dim = 0; dim < x.shape().rank(); ++dim) {
    const std::size_t to = dim <= at ? dim : dim + more;
    shape[to] = dim == at ? x.shape()[dim] / product : x.shape()[dim];
    shape.set_sharding(to, x.shape().sharding(dim));
  }
  for (std::size_t i = 0; i < more; ++i) shape[at + 1 + i] = extents[i];
  return detail::view_of<detail::ruled_t<detail::Unflattened<Dim, int(more) + 1>, X>>(x, shape);
}

// The same on Variables. Nothing is kept for backward but shapes.
template <int... Dims, class C, class X>
requires(sizeof...(Dims) > 0) auto permute(const Variable<C, X>& x) {
  return detail::record_by_gradient(x, permute<Dims...>(x.value()), [](const auto& g) { return permute_back<Dims...>(g); });
}
template <int A, int B, class C, class X>
auto transpose(const Variable<C, X>& x) {
  return detail::record_by_gradient(x, transpose<A, B>(x.value()), [](const auto& g) { return transpose<A, B>(g); });
}
template <int First, int Last, class C, class X>
auto flatten(const Variable<C, X>& x) {
  return detail::record_by_gradient(x, flatten<First, Last>(x.value()),
                                    [shape = x.shape()](const auto& g) { return detail::view_of<gradient_t<X>>(g, shape); });
}
template <int Dim, class C, class X, std::integral... N>
auto unflatten(const Variable<C, X>& x, N... inner) {
  return detail::record_by_gradient(x, unflatten<Dim>(x.value(), inner...),
                                    [shape = x.shape()](const auto& g) { return detail::view_of<gradient_t<X>>(g, shape); });
}
template <class C, class X>
auto reshape(const Variable<C, X>& x, const Shape& shape) {
  return detail::record_by_gradient(x, reshape(x.value(), shape),
                                    [before = x.shape()](const auto& g) { return detail::view_of<gradient_t<X>>(g, before); });
}
template <class C, class X>
auto split_heads(const Variable<C, X>& x, std::size_t width) {
  return detail::record_by_gradient(x, split_heads(x.value(), width), [](const auto& g) { return merge_heads(g); });
}
template <class C, class X>
auto merge_heads(const Variable<C, X>& x) {
  return detail::record_by_gradient(x, merge_heads(x.value()),
                                    [width = x.columns()](const auto& g) { return split_heads(g, width); });
}

}  // namespace operations

}  // namespace weft
