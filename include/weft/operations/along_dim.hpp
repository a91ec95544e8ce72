// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums, running sums, means, largest elements and softmax along a dim that the program names: sum<1>(x). The dim is a template
// argument because the placement of the result depends on it: a sum along a dim that tp cuts gives a Partial. Tensors of any
// number of dims.
//
//   auto scores = softmax<2>(logits);   // [samples, heads, classes]
//   auto energy = sum<1>(square(x));    // [samples, ...], without dim 1

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/kernels/along_dim.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/reductions.hpp>
#include <weft/operations/rules.hpp>
#include <weft/operations/shapes.hpp>
#include <weft/operations/sums_over_space.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {

inline kernels::Along along(const char* operation, NamedOperand x, int dim) {
  require_dim(operation, x, dim);
  const Around around(x.shape(), std::size_t(dim));
  return {around.outer, around.extent, around.inner};
}
template <class X, int Dim>
constexpr void require_dim_whole() {
  static_assert(!sharded_along<X, Dim>,
                "weft: mean, max and softmax along a dim need all of it on one rank, but an axis cuts it: gather it first, "
                "to<Invariant<axis>>(x), on tensors (context, x); a sum along it is Partial, sum<dim>(x), and so is the mean of "
                "a Variable over a domain axis; the max of a Variable over one domain axis is whole");
}
// The dim of an operation that moves or orders its elements, which must be whole on each rank.
template <int Dim, class X>
kernels::Along along_whole(const char* operation, const X& x) {
  static_assert(!sharded_along<X, Dim>,
                "weft: pad, flip, roll, cumsum, sort, topk and Fourier transforms need all of a dim on one rank, but an axis "
                "cuts it: gather it first, to<Invariant<axis>>(x), or let a domain axis cut another dim in its place, "
                "to<Shard<axis, 1>>(x), on tensors (context, x)");
  require_dim(operation, x, Dim);
  require_even(operation, x.shape(), Dim);
  return along(operation, x, Dim);
}
// Throws ShapeError for more elements than std::int32_t has places for.
inline void require_places(const char* operation, NamedOperand x, std::size_t elements) {
  constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
  if (elements > most)
    throw_error<ShapeError>({call_text(operation, {x}), ": ", elements, " elements, and std::int32_t has places for ", most});
}
// Throws LayoutError if a sum of values along the dim would count one several times, or count padding.
inline void require_counted_once(const char* operation, const Shape& shape, int dim, Of of) {
  if (of == Of::gradients || shape.sharding(std::size_t(dim)) == DimSharding::even) return;
  Shape summed = shape;
  for (std::size_t d = 0; d < shape.rank(); ++d)
    if (d != std::size_t(dim)) summed.set_sharding(d, DimSharding::even);
  require_counted_once(operation, summed, of);
}
inline void require_some(const char* operation, const kernels::Along& around, NamedOperand x, int dim) {
  if (around.extent == 0) throw_error<ShapeError>({call_text(operation, {x}), ": dim ", dim, " is empty"});
}

// The gradient of x from that of a sum along Dim: factor * g in every place.
template <int Dim, class X, class G>
gradient_t<X> spread_gradient(const char* operation, const Shape& x, const G& g, double factor) {
  require_gradient_of<ruled_t<SumOver<Dim>, X, accumulate_t<typename X::value_type>>, G>();
  require_same_shape(operation, without_dim(x, Dim), g);
  gradient_t<X> out(g.device(), x);
  kernels::spread_along<typename X::value_type>(g.device(), along(operation, x, Dim), g.data(), number_t<X>(factor), out.data());
  return out;
}
// The same of the sum of all elements.
template <class X, class G>
gradient_t<X> fill_gradient(const Shape& x, const G& g) {
  require_one("sum_gradient", g);
  gradient_t<X> out(g.device(), x);
  kernels::fill_scalar(g.device(), out.size(), g.data(), out.data());
  return out;
}
// A rank's largest elements of the dim, or where a domain axis cuts it, those of all ranks.
template <int Dim>
struct Largest {
  template <class P>
  using of = std::conditional_t<shard_dim<P> == Dim, Invariant<typename P::axis>, typename SumOver<Dim>::template of<P>>;
};
template <int Dim, class X>
using largest_t = ruled_t<Largest<Dim>, X>;
// The largest elements along Dim of the rank's part of x, and their places.
template <int Dim, class X>
auto largest_here(const X& x) {
  using Y = largest_t<Dim, X>;
  const auto around = along("max", x, Dim);
  require_some("max", around, x, Dim);
  require_places("max", x, around.extent);
  const Shape shape = without_dim(x.shape(), Dim);
  std::pair out{Y(x.device(), shape), with_scalar_t<Y, std::int32_t>(x.device(), shape)};
  kernels::max_along<typename X::value_type>(x.device(), around, x.data(), out.first.data(), out.second.data());
  return out;
}
// g at the places, along Dim.
template <int Dim, class X, class N, class G>
gradient_t<X> place_gradient(const Shape& x, const N& places, const G& g) {
  require_gradient_of<largest_t<Dim, X>, G>();
  require_same_shape("max_gradient", places, g);
  gradient_t<X> out(g.device(), x);
  kernels::place_along<typename X::value_type>(g.device(), along("max_gradient", x, Dim), g.data(), places.data(), out.data());
  return out;
}
// The elements of x at the places, along Dim: the transpose of place_gradient.
template <int Dim, class X, class N>
auto taken_elements(const X& x, const N& places) {
  largest_t<Dim, X> out(x.device(), places.shape());
  kernels::take_along<typename X::value_type>(x.device(), along("max", x, Dim), 1, x.data(), places.data(), out.data());
  return out;
}
// The largest elements `found` of x and their places as a Variable. sum(terms): the numbers at these places of all ranks.
template <int Dim, class C, class X, class Found, class Sum>
auto max_by_places(Found found, const Variable<C, X>& x, const Sum& sum) {
  const auto placed = [shape = x.shape(), places = found.second](const auto& g) {
    return place_gradient<Dim, bottom_t<X>>(shape, places, g);
  };
  if constexpr (!Nested<X>) return record_by_gradient(x, std::move(found.first), placed);
  else return linear_pair([sum, places = found.second](const auto& v) { return sum(taken_elements<Dim>(v, places)); }, placed, x);
}
// Softmax along a dim that no axis cuts, or its logarithm.
template <bool Log, class X>
X softmax_at(const char* operation, const X& x, int dim) {
  const auto around = along(operation, x, dim);
  require_counted_once(operation, x.shape(), dim, Of::values);
  X out(x.device(), x.shape());
  kernels::softmax_along<Log, typename X::value_type>(x.device(), around, x.data(), out.data());
  return out;
}
template <bool Log, class Y, class G>
G softmax_gradient_at(const char* operation, const Y& y, const G& g, int dim) {
  require_gradient_of<Y, G>();
  require_same_shape(operation, y, g);
  G out(y.device(), y.shape());
  kernels::softmax_along_backward<Log, typename Y::value_type>(y.device(), along(operation, y, dim), y.data(), g.data(),
                                                               out.data());
  return out;
}
// Softmax along the last dim, if no axis cuts it.
template <class X>
constexpr bool require_last_dim_whole() {
  require_not_partial<X>();
  static_assert(
      !columns_cut<X>,
      "weft: softmax and log_softmax along the last dim need whole rows, and an axis cuts a dim beyond 0, which may be the "
      "last: name the dim, softmax<2>(x), or gather the rows first, to<Invariant<axis>>(x), on tensors (context, x)");
  return !any_partial<X> && !columns_cut<X>;
}
template <class X>
int last_dim(const X& x) {
  const std::size_t rank = x.shape().rank();
  if (rank == 0 || (rank == 1 && sharded_along<X, 0>))
    throw_error<LayoutError>({call_text("softmax", {x}), ": there is no last dim that is whole on each rank"});
  return int(rank) - 1;
}
template <bool Log, class X>
X softmax_of_rows(const X& x) {
  require_last_dim_whole<X>();
  return softmax_at<Log>("softmax", x, last_dim(x));
}
template <bool Log, class Y, class G>
G softmax_of_rows_gradient(const Y& y, const G& g) {
  return softmax_gradient_at<Log>("softmax_gradient", y, g, int(y.shape().rank()) - 1);
}

template <int Dim, class X>
using summed_along_t = ruled_t<SumOver<Dim>, X, accumulate_t<typename X::value_type>>;

}  // namespace detail

namespace operations {

/// The sum along dim `Dim`, which is gone in the result, in accumulate_t; [1] of one dim. Partial on an axis that cuts it. Throws
/// LayoutError for values that several ranks hold alike, or padding. Numerics: the order of the terms depends only on the
/// extents.
template <int Dim, AnyTensor X>
auto sum(const X& x, Of of = Of::values) {
  const auto around = detail::along("sum", x, Dim);
  detail::require_counted_once("sum", x.shape(), Dim, of);
  detail::summed_along_t<Dim, X> out(x.device(), detail::without_dim(x.shape(), Dim));
  kernels::sum_along<typename X::value_type>(x.device(), around, x.data(), detail::number_t<X>(1), out.data());
  return out;
}
/// The gradient of x, given the gradient `g` of sum<Dim>(x): g everywhere along the dim. No communication.
template <int Dim, AnyTensor X, AnyTensor G>
gradient_t<X> sum_gradient(const X& x, const G& g) {
  return detail::spread_gradient<Dim, X>("sum_gradient", x.shape(), g, 1);
}
/// The sum of all elements, [1], as sum_all. Gradient: sum_all_gradient(x, g).
template <AnyTensor X>
auto sum(const X& x, Of of = Of::values) {
  return sum_all(x, of);
}

/// The sums of the elements up to each one along dim `Dim`, which no axis may cut, with x's shape and element type; Partial stays
/// Partial. Numerics: terms in their order, in accumulate_t. The gradient is cumsum_gradient<Dim>(g).
template <int Dim, AnyTensor X>
X cumsum(const X& x) {
  const auto around = detail::along_whole<Dim>("cumsum", x);
  X out(x.device(), x.shape());
  kernels::cumsum_along<false, typename X::value_type>(x.device(), around, x.data(), out.data());
  return out;
}
/// The sums of g from each element on.
template <int Dim, AnyTensor G>
G cumsum_gradient(const G& g) {
  const auto around = detail::along_whole<Dim>("cumsum_gradient", g);
  G out(g.device(), g.shape());
  kernels::cumsum_along<true, typename G::value_type>(g.device(), around, g.data(), out.data());
  return out;
}

/// The mean along dim `Dim`, which no axis may cut, in accumulate_t. Partial stays Partial.
template <int Dim, AnyTensor X>
auto mean(const X& x) {
  detail::require_dim_whole<X, Dim>();
  const auto around = detail::along("mean", x, Dim);
  detail::require_some("mean", around, x, Dim);
  detail::require_counted_once("mean", x.shape(), Dim, Of::values);
  detail::summed_along_t<Dim, X> out(x.device(), detail::without_dim(x.shape(), Dim));
  kernels::sum_along<typename X::value_type>(x.device(), around, x.data(), detail::number_t<X>(1.0 / double(around.extent)),
                                             out.data());
  return out;
}
template <int Dim, AnyTensor X, AnyTensor G>
gradient_t<X> mean_gradient(const X& x, const G& g) {
  return detail::spread_gradient<Dim, X>("mean_gradient", x.shape(), g, 1.0 / double(x.shape()[Dim]));
}
/// The mean of all elements, [1]; no axis may cut x. Gradient: scale(sum_all_gradient(x, g), 1 / x.size()).
template <AnyTensor X>
auto mean(const X& x) {
  static_assert(
      !detail::cut_between<X, 0, int(Shape::max_rank) - 1>,
      "weft: mean of a tensor that an axis cuts: a rank has only the number of elements of its part; divide the sum by the "
      "number of the whole: scale(to<Invariant<axis>>(sum(x)), 1.0 / elements)");
  return scale(sum_all(x), 1.0 / double(x.size()));
}

/// The largest element along dim `Dim`, which no axis may cut, and its place along it (std::int32_t; the first of equal ones). A
/// NaN counts as the largest. Gradient, by the places: max_gradient<Dim>(x, places, g).
template <int Dim, AnyTensor X>
auto max_and_place(const X& x) {
  require_not_partial<X>();
  detail::require_dim_whole<X, Dim>();
  return detail::largest_here<Dim>(x);
}
template <int Dim, AnyTensor X>
auto max(const X& x) {
  return max_and_place<Dim>(x).first;
}
template <int Dim, AnyTensor X>
auto argmax(const X& x) {
  return max_and_place<Dim>(x).second;
}
/// g where max<Dim>(x) found its element, 0 elsewhere.
template <int Dim, AnyTensor X, AnyTensor N, AnyTensor G>
gradient_t<X> max_gradient(const X& x, const N& places, const G& g) {
  return detail::place_gradient<Dim, X>(x.shape(), places, g);
}

/// Softmax along dim `Dim`, which no axis may cut, or its logarithm; placed as x. Statistics in accumulate_t.
template <int Dim, AnyTensor X>
X softmax(const X& x) {
  require_not_partial<X>();
  detail::require_dim_whole<X, Dim>();
  return detail::softmax_at<false>("softmax", x, Dim);
}
template <int Dim, AnyTensor X>
X log_softmax(const X& x) {
  require_not_partial<X>();
  detail::require_dim_whole<X, Dim>();
  return detail::softmax_at<true>("log_softmax", x, Dim);
}
/// The gradient of x, given y = softmax<Dim>(x), or y = log_softmax<Dim>(x), and its gradient.
template <int Dim, AnyTensor Y, AnyTensor G>
G softmax_gradient(const Y& y, const G& g) {
  return detail::softmax_gradient_at<false>("softmax_gradient", y, g, Dim);
}
template <int Dim, AnyTensor Y, AnyTensor G>
G log_softmax_gradient(const Y& y, const G& g) {
  return detail::softmax_gradient_at<true>("log_softmax_gradient", y, g, Dim);
}

// The same on Variables; softmax(x) and log_softmax(x) are along the last dim.
template <int Dim, class C, class X>
auto sum(const Variable<C, X>& x) {
  return detail::record_by_gradient(x, sum<Dim>(x.value()), [shape = x.shape()](const auto& g) {
    return detail::spread_gradient<Dim, X>("sum_gradient", shape, g, 1);
  });
}
template <class C, class X>
auto sum(const Variable<C, X>& x) {
  return detail::record_by_gradient(x, sum(x.value()),
                                    [shape = x.shape()](const auto& g) { return detail::fill_gradient<X>(shape, g); });
}
template <int Dim, class C, class X>
auto cumsum(const Variable<C, X>& x) {
  return detail::linear_pair([](const auto& value) { return cumsum<Dim>(value); },
                             [](const auto& g) { return cumsum_gradient<Dim>(g); }, x);
}
/// The mean of a dim that a domain axis cuts is Partial there, the term of this rank: pieces may have different extents, whose
/// sum is all-reduced.
template <int Dim, class C, class X>
auto mean(const Variable<C, X>& x) {
  const auto recorded = [&](auto y, double share) {
    return detail::record_by_gradient(x, std::move(y), [shape = x.shape(), share](const auto& g) {
      return detail::spread_gradient<Dim, X>("mean_gradient", shape, g, share);
    });
  };
  if constexpr (detail::cut_in_space_at<X, Dim>) {
    auto sums = sum<Dim>(x.value());
    const double share = 1 / detail::extent_over_space<X, Dim>(x.context(), x.shape()[Dim]);
    return recorded(scale(sums, share), share);
  } else {
    auto means = mean<Dim>(x.value());
    return recorded(std::move(means), 1.0 / double(x.shape()[Dim]));
  }
}
template <class C, class X>
auto mean(const Variable<C, X>& x) {
  return detail::record_by_gradient(x, mean(x.value()), [shape = x.shape()](const auto& g) {
    return detail::fill_gradient<X>(shape, scale(g, 1.0 / double(shape.size())));
  });
}
/// The max of a dim behind the first that one domain axis cuts is Invariant there: the first of equal elements of all ranks gets
/// the gradient, so max<2>(max<3>(images)) pools whole images as on one rank. Gathers a number of each line from every rank.
template <int Dim, class C, class X>
auto max(const Variable<C, X>& x) {
  using B = detail::bottom_t<X>;
  if constexpr (detail::cut_once_in_space_at<B, Dim>) {
    require_not_partial<B>();
    const auto comm = detail::ground_of(x).context().comm(typename detail::AxisThatCuts<B, Dim>::type());
    auto found = detail::largest_here<Dim>(detail::bottom_of(x));
    if (comm.size() > 1) found.first = detail::largest_of_ranks(comm, found.first, found.second);
    return detail::max_by_places<Dim>(std::move(found), x, [comm](auto terms) {
      if (comm.size() > 1) comm.all_reduce(raw(terms));
      return terms;
    });
  } else {
    auto found = max_and_place<Dim>(detail::bottom_of(x));
    return detail::max_by_places<Dim>(std::move(found), x, [](auto taken) { return taken; });
  }
}
/// A constant, of the forward around inside of grad.
template <int Dim, class C, class X>
auto argmax(const Variable<C, X>& x) {
  auto places = argmax<Dim>(detail::bottom_of(x));
  return Variable<C, decltype(places)>(std::move(places), detail::ground_of(x).tape());
}
template <int Dim, class C, class X>
auto softmax(const Variable<C, X>& x) {
  return detail::record_by_result(x, softmax<Dim>(x.value()),
                                  [](const auto& y, const auto& g) { return softmax_gradient<Dim>(y, g); });
}
template <int Dim, class C, class X>
auto log_softmax(const Variable<C, X>& x) {
  return detail::record_by_result(x, log_softmax<Dim>(x.value()),
                                  [](const auto& y, const auto& g) { return log_softmax_gradient<Dim>(y, g); });
}
template <class C, class X>
auto softmax(const Variable<C, X>& x) {
  return detail::record_by_result(x, detail::softmax_of_rows<false>(x.value()),
                                  [](const auto& y, const auto& g) { return detail::softmax_of_rows_gradient<false>(y, g); });
}
template <class C, class X>
auto log_softmax(const Variable<C, X>& x) {
  return detail::record_by_result(x, detail::softmax_of_rows<true>(x.value()),
                                  [](const auto& y, const auto& g) { return detail::softmax_of_rows_gradient<true>(y, g); });
}

}  // namespace operations

}  // namespace weft
