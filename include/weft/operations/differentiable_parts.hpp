// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parts of tensors and other orders of their dims inside of grad(f, x), and rows by ids: slices, concatenation, views,
// permutations, index_select, and sums, means and softmax over segments. Placements and shapes are those of parts.hpp,
// shapes.hpp, index_select.hpp and segments.hpp. All but softmax are linear, so each gradient is the transposed operation.

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/nested_variable.hpp>
#include <weft/kernels/along_dim.hpp>
#include <weft/operations/index_select.hpp>
#include <weft/operations/parts.hpp>
#include <weft/operations/segments.hpp>
#include <weft/operations/shapes.hpp>

namespace weft {

namespace detail {

// The transposes of slices and views on any level: g as a part of a tensor of zeros, and as a tensor of type Y with this shape.
template <int Dim, AnyTensor G>
G within_zeros(const G& g, const Shape& shape, std::size_t first) {
  return slice_gradient(Dim, shape, first, g);
}
template <int Dim, class C, class G>
auto within_zeros(const Variable<C, G>& g, const Shape& shape, std::size_t first) {
  return linear_in(
      g, [=](const auto& value) { return within_zeros<Dim>(value, shape, first); },
      [first, count = g.shape()[Dim]](const auto& h) { return operations::slice<Dim>(h, first, count); });
}
template <class Y, AnyTensor G>
Y viewed(const G& g, const Shape& shape) {
  return view_of<Y>(g, shape);
}
template <class Y, class C, class G>
auto viewed(const Variable<C, G>& g, const Shape& shape) {
  return linear_in(
      g, [=](const auto& value) { return viewed<Y>(value, shape); },
      [before = g.shape()](const auto& h) { return viewed<gradient_t<bottom_t<G>>>(h, before); });
}
/// The elements of x [rows, ...] in these rows, 0 where the row is negative.
template <AnyTensor X, AnyTensor N>
X taken_rows(const X& x, const N& places) {
  X out(x.device(), places.shape());
  kernels::take_along<typename X::value_type>(x.device(), {1, x.shape()[0], row_width(x.shape())}, places.shape()[0], x.data(),
                                              places.data(), out.data());
  return out;
}
/// The Variable on the innermost level.
template <class V>
const V& deepest_of(const V& x) {
  return x;
}
template <class V, class W, class... More>
const auto& deepest_of(const V& x, const W& y, const More&... more) {
  if constexpr (levels<V> >= levels<W>) return deepest_of(x, more...);
  else return deepest_of(y, more...);
}
/// concat of values on one level.
template <int Dim, class C, class X, class... More>
auto joined_parts(const Variable<C, X>& x, const Variable<C, More>&... more) {
  std::size_t at = 0;
  const auto part = [&at](const auto& operand) {
    const std::size_t first = at, count = operand.shape()[Dim];
    at += count;
    return from(operand, [first, count](const auto&, const auto& g) { return operations::slice<Dim>(g, first, count); });
  };
  auto y = operations::concat<Dim>(x.value(), more.value()...);
  if constexpr (is_refused<decltype(y)>) return y;
  else
    return std::apply([&](auto... from) { return record_any(x, std::move(y), std::move(from)...); },
                      std::tuple{part(x), part(more)...});
}
/// The gradient of a view of a Variable of X.
template <class X>
auto view_rule() {
  return [](const auto& a, const auto&, const auto& g) { return viewed<gradient_t<bottom_t<X>>>(g, a.shape()); };
}

}  // namespace detail

namespace operations {

template <int Dim, class C, detail::Nested X>
auto slice(const Variable<C, X>& x, std::size_t first, std::size_t count) {
  return detail::unary(x, slice<Dim>(x.value(), first, count), [first](const auto& a, const auto&, const auto& g) {
    return detail::within_zeros<Dim>(g, a.shape(), first);
  });
}

template <int Dim, class C, class X, class... More>
requires(detail::Nested<X> || (detail::Nested<More> || ...)) auto concat(const Variable<C, X>& x,
                                                                         const Variable<C, More>&... more) {
  const auto& deepest = detail::deepest_of(x, more...);
  return detail::joined_parts<Dim>(detail::raised(deepest, x), detail::raised(deepest, more)...);
}

template <int First, int Last, class C, detail::Nested X>
auto flatten(const Variable<C, X>& x) {
  return detail::unary(x, flatten<First, Last>(x.value()), detail::view_rule<X>());
}
template <int Dim, class C, class D, class X, std::integral... N>
auto unflatten(const Variable<C, Variable<D, X>>& x, N... inner) {
  return detail::unary(x, unflatten<Dim>(x.value(), inner...), detail::view_rule<Variable<D, X>>());
}
template <class C, detail::Nested X>
auto reshape(const Variable<C, X>& x, const Shape& shape) {
  return detail::unary(x, reshape(x.value(), shape), detail::view_rule<X>());
}
template <int A, int B, class C, detail::Nested X>
auto transpose(const Variable<C, X>& x) {
  return detail::unary(x, transpose<A, B>(x.value()), [](const auto&, const auto&, const auto& g) { return transpose<A, B>(g); });
}
template <int... Dims, class C, class D, class X>
requires(sizeof...(Dims) > 0) auto permute(const Variable<C, Variable<D, X>>& x) {
  return detail::unary(x, permute<Dims...>(x.value()),
                       [](const auto&, const auto&, const auto& g) { return permute_back<Dims...>(g); });
}
/// The transpose of permute, on any level.
template <int... Dims, class C, class G>
requires(sizeof...(Dims) > 0) auto permute_back(const Variable<C, G>& g) {
  return detail::linear_in(
      g, [](const auto& value) { return permute_back<Dims...>(value); }, [](const auto& h) { return permute<Dims...>(h); });
}

/// The ids are of the forward around; index_select and scatter_add are transposes of each other.
template <class C, class X, class I, detail::IdScope L = CommonIds>
requires(detail::Nested<X> && !detail::Nested<I>) auto index_select(const Variable<C, X>& x, const Variable<C, I>& ids,
                                                                    L scope = {}) {
  return detail::unary(x, index_select(x.value(), ids, scope), [ids](const auto& a, const auto&, const auto& g) {
    return scatter_add(g, ids, a.shape()[0], typename detail::GradientScope<detail::bottom_t<X>, L>::type());
  });
}
template <class C, class X, class I, detail::IdScope L = CommonIds>
requires(detail::Nested<X> && !detail::Nested<I>) auto scatter_add(const Variable<C, X>& x, const Variable<C, I>& ids,
                                                                   std::size_t segments, L scope = {}) {
  return detail::unary(x, scatter_add(x.value(), ids, segments, scope),
                       [ids, scope](const auto&, const auto&, const auto& g) { return index_select(g, ids, scope); });
}

/// The transpose of segment_mean, on any level: each row has the mean of its segment over the segment's rows.
template <class C, class I, class G, detail::IdScope L = CommonIds>
auto segment_mean_gradient(const Variable<C, I>& ids, const Variable<C, G>& g, L scope = {}) {
  return detail::linear_in(
      g,
      [=](const auto& value) {
        if constexpr (AnyTensor<decltype(value)>) return segment_mean_gradient(ids.value(), value, scope);
        else return segment_mean_gradient(ids, value, scope);
      },
      [ids, scope, segments = g.shape()[0]](const auto& h) {
        if constexpr (AnyTensor<decltype(h)>) return segment_mean(h, ids.value(), segments, scope);
        else return segment_mean(h, ids, segments, scope);
      });
}
template <class C, class X, class I, detail::IdScope L = CommonIds>
requires(detail::Nested<X> && !detail::Nested<I>) auto segment_mean(const Variable<C, X>& x, const Variable<C, I>& ids,
                                                                    std::size_t segments, L scope = {}) {
  return detail::unary(x, segment_mean(x.value(), ids, segments, scope),
                       [ids, scope](const auto&, const auto&, const auto& g) { return segment_mean_gradient(ids, g, scope); });
}
template <class C, class X, class I, detail::IdScope L = CommonIds>
requires(detail::Nested<X> && !detail::Nested<I>) auto segment_softmax(const Variable<C, X>& x, const Variable<C, I>& ids,
                                                                       std::size_t segments, L scope = {}) {
  return detail::unary(x, segment_softmax(x.value(), ids, segments, scope),
                       [ids, segments, scope](const auto&, const auto& y, const auto& g) {
                         return (g - index_select(scatter_add(g * y, ids, segments, scope), ids, scope)) * y;
                       });
}

/// The choice of rows is a constant.
template <class C, class X, class I, detail::IdScope L = CommonIds>
requires(detail::Nested<X> && !detail::Nested<I>) auto segment_max(const Variable<C, X>& x, const Variable<C, I>& ids,
                                                                   std::size_t segments, L scope = {}) {
  using B = detail::bottom_t<X>;
  const auto found = segment_max_and_place(detail::bottom_of(x), ids.value(), segments, scope);
  if constexpr (!detail::nonlinear_segments_fit<detail::Segmented<B, I, L>>()) return detail::AlreadyRefused();
  else
    return detail::linear_pair(
        [places = found.second](const auto& value) { return detail::taken_rows(value, places); },
        [ids = ids.value(), places = found.second](const auto& g) { return segment_max_gradient(ids, places, g); }, x);
}
}  // namespace operations

}  // namespace weft
