// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements in order along a dim that no axis cuts, and the largest or smallest few of them, with their places. The values have a
// gradient, the places are constants.
//
//   auto [values, places] = topk<1>(scores, 2);   // [tokens, 2] of [tokens, experts], the largest first
//   auto rank = sort<0>(x).second;

#include <cstddef>
#include <cstdint>
#include <utility>

#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/kernels/order_along.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

/// The order of sort and topk.
enum class SortOrder { ascending, descending };

namespace detail {

template <int Dim, class X>
std::pair<X, with_scalar_t<X, std::int32_t>> ordered(const char* operation, const X& x, std::size_t count, SortOrder order) {
  require_not_partial<X>();
  const auto around = along_whole<Dim>(operation, x);
  if (count > around.extent)
    throw_error<ShapeError>({call_text(operation, {x}), ": ", count, " of ", around.extent, " elements of dim ", Dim});
  require_places(operation, x, around.extent);
  const Shape shape = with_extent(x.shape(), Dim, count);
  std::pair out{X(x.device(), shape), with_scalar_t<X, std::int32_t>(x.device(), shape)};
  kernels::order_along<typename X::value_type>(x.device(), around, count, order == SortOrder::descending, x.data(),
                                               out.first.data(), out.second.data());
  return out;
}

// g at the places that its elements have in a tensor of this shape, 0 elsewhere.
template <int Dim, class N, class G>
G place_ordered(const Shape& x, const N& places, const G& g) {
  require_same_shape("sort_gradient", places, g);
  G out(g.device(), x);
  kernels::place_ordered<typename G::value_type>(g.device(), along("sort_gradient", x, Dim), g.shape()[Dim], g.data(),
                                                 places.data(), out.data());
  return out;
}
// The elements of x at these places.
template <int Dim, class X, class N>
X taken_in_order(const X& x, const N& places) {
  X out(x.device(), places.shape());
  kernels::take_along<typename X::value_type>(x.device(), along("sort", x, Dim), places.shape()[Dim], x.data(), places.data(),
                                              out.data());
  return out;
}
// Values with the gradient of x, and places, of the forward around inside of grad.
template <int Dim, class C, class X, class Y, class N>
auto record_ordered(const Variable<C, X>& x, std::pair<Y, N> found) {
  Variable<C, N> places(found.second, ground_of(x).tape());
  const auto placed = [shape = x.shape(), at = found.second](const auto& g) { return place_ordered<Dim>(shape, at, g); };
  if constexpr (Nested<X>) {
    const auto taken = [at = found.second](const auto& value) { return taken_in_order<Dim>(value, at); };
    return std::pair{linear_pair(taken, placed, x), std::move(places)};
  } else {
    return std::pair{record_by_gradient(x, std::move(found.first), placed), std::move(places)};
  }
}

}  // namespace detail

namespace operations {

/// The elements of x along dim `Dim` in order, and their places along it as std::int32_t, both placed as x, which is not Partial.
/// Equal elements keep their order; a NaN counts as the largest. As torch.sort with stable=True. The gradient, by the places:
/// sort_gradient<Dim>(x.shape(), places, g).
template <int Dim, AnyTensor X>
auto sort(const X& x, SortOrder order = SortOrder::ascending) {
  detail::require_dim("sort", x, Dim);
  return detail::ordered<Dim>("sort", x, x.shape()[Dim], order);
}
/// The `count` largest elements along dim `Dim`, or the smallest of SortOrder::ascending, in order, with their places; the first
/// of equal ones. Throws ShapeError if the dim has fewer.
template <int Dim, AnyTensor X>
auto topk(const X& x, std::size_t count, SortOrder order = SortOrder::descending) {
  return detail::ordered<Dim>("topk", x, count, order);
}
/// g at the places that its elements have in a tensor of this shape, 0 elsewhere.
template <int Dim, AnyTensor N, AnyTensor G>
G sort_gradient(const Shape& x, const N& places, const G& g) {
  return detail::place_ordered<Dim>(x, places, g);
}

// The same on Variables: a pair of the values and the places, a constant.
template <int Dim, class C, class X>
auto sort(const Variable<C, X>& x, SortOrder order = SortOrder::ascending) {
  return detail::record_ordered<Dim>(x, sort<Dim>(detail::bottom_of(x), order));
}
template <int Dim, class C, class X>
auto topk(const Variable<C, X>& x, std::size_t count, SortOrder order = SortOrder::descending) {
  return detail::record_ordered<Dim>(x, topk<Dim>(detail::bottom_of(x), count, order));
}

}  // namespace operations

}  // namespace weft
