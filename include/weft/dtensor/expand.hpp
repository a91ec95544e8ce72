// SPDX-License-Identifier: Apache-2.0
#pragma once
// Broadcasting of DTensors, and sums along dims, which are its gradient.
//
//   auto y = expand(x, {5, 8});       // x [8] or [1, 8] or [5, 1]
//   auto s = sum(x, {0, -1});         // over the first and the last dim
//
//   operation   takes on an axis   result
//   expand      any                cut alike; a repeated dim is cut nowhere
//   sum         any                partial, if the axis cuts a summed dim; else cut alike

#include <array>
#include <cstddef>
#include <initializer_list>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include <weft/dtensor/apply.hpp>
#include <weft/dtensor/views.hpp>
#include <weft/kernels/along_dim.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/expand.hpp>

namespace weft::dtensor {

namespace detail {

using weft::detail::aligned_extents;

/// The shape to which all operands are expanded. Throws ShapeError if there is none.
template <class... X>
Shape broadcast_shape(std::string_view name, const X&... x) {
  Shape shape = Shape::of_rank(std::max({x.shape().rank()...}));
  for (std::size_t dim = 0; dim < shape.rank(); ++dim) shape[dim] = 1;
  for (const Shape& own : {x.shape()...}) {
    const std::size_t added = shape.rank() - own.rank();
    for (std::size_t dim = 0; dim < own.rank(); ++dim) {
      std::size_t& extent = shape[added + dim];
      if (extent != own[dim] && extent != 1 && own[dim] != 1)
        refuse_shapes(name,
                      "the shapes do not broadcast: aligned at their last dims, extents are equal or 1; insert dims of one "
                      "element with reshape",
                      x...);
      if (extent == 1) extent = own[dim];
    }
  }
  return shape;
}

/// The dims as bits. Throws UsageError for a dim that x lacks.
template <class D>
unsigned dims_of(std::string_view name, const D& x, const std::vector<int>& dims) {
  unsigned bits = 0;
  for (int dim : dims) {
    const int rank = int(x.shape().rank());
    if (dim < -rank || dim >= rank)
      throw_error<UsageError>({"dtensor: ", name, " of ", x.shape().text(), " along dim ", dim, ": it has ", rank, " dims"});
    bits |= 1u << (dim < 0 ? dim + rank : dim);
  }
  return bits;
}
template <class D>
std::vector<int> all_dims(const D& x) {
  std::vector<int> dims(x.shape().rank());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}
/// x's shape with these dims of one element, or without them.
inline Shape reduced_shape(const Shape& x, unsigned dims, bool kept) {
  std::vector<std::size_t> extents;
  for (std::size_t dim = 0; dim < x.rank(); ++dim)
    if (!(dims >> dim & 1u)) extents.push_back(x[dim]);
    else if (kept) extents.push_back(1);
  return Shape::of(std::span(extents));
}

/// The dims of an array around one of them.
inline kernels::Along along(const Shape& shape, std::size_t dim) {
  kernels::Along a{1, shape[dim], 1};
  for (std::size_t d = 0; d < shape.rank(); ++d) (d < dim ? a.outer : a.inner) *= d == dim ? 1 : shape[d];
  return a;
}

/// Calls f(along, x, y) for one dim after the other, from an array to a smaller one.
template <class T, class Exec, class F>
void reduce_dims(const Tensor<T, Exec>& x, unsigned dims, const Tensor<T, Exec>& out, const F& f) {
  Tensor<T, Exec> now = x;
  Shape shape = x.shape();
  for (std::size_t dim = 0; dim < x.shape().rank(); ++dim) {
    if (!(dims >> dim & 1u)) continue;
    const kernels::Along a = along(shape, dim);
    shape[dim] = 1;
    const bool last = (dims >> dim) == 1u;
    const Tensor<T, Exec> next = last ? out : Tensor<T, Exec>(x.device(), shape);
    f(a, now.data(), next.data());
    now = next;
  }
  if (dims == 0) weft::detail::copy_rows(x.device(), 1, x.size(), x.data(), x.size(), out.data(), x.size());
}

template <class D>
D sum_kept(const D& x, unsigned dims) {
  using T = typename D::value_type;
  const auto local = [dims](const D& y, const D& a) {
    auto& device = a.to_local().device();
    reduce_dims(a.to_local(), dims, y.to_local(), [&](const kernels::Along& shape, const T* from, T* to) {
      using A = accumulate_t<T>;
      if constexpr (std::is_same_v<A, T>) kernels::sum_along<T>(device, shape, from, A(1), to);
      else {
        const Tensor<A, typename D::execution_space> wide(device, {shape.outer * shape.inner});
        kernels::sum_along<T>(device, shape, from, A(1), wide.data());
        kernels::cast<A, T>(device, wide.size(), wide.data(), to);
      }
    });
  };
  return apply<T>("sum", weft::detail::reduction_rule(int(x.shape().rank()), dims, true, Reduction::sum),
                  reduced_shape(x.shape(), dims, true), local, x);
}

/// The gradient of an operand of shape `to` from that of its expanded form.
template <class D>
D sum_to(const D& g, const Shape& to) {
  if (g.shape() == to) return g;
  const auto from = aligned_extents(g.shape()), kept = aligned_extents(to);
  unsigned dims = 0;
  for (std::size_t dim = 0; dim < g.shape().rank(); ++dim) {
    const std::size_t at = Shape::max_rank - g.shape().rank() + dim;
    if (from[at] != kept[at]) dims |= 1u << dim;
  }
  return reshape(sum_kept(g, dims), to);
}

}  // namespace detail

/// x repeated along its dims of one element, and along new dims before its first. An axis on which `wanted` cuts a repeated dim
/// and x is whole cuts it in the result, too. Throws ShapeError if `shape` is no such shape.
template <class D>
requires(detail::is_dtensor<D>) D expand(const D& x, const Shape& shape, const Placements& wanted = {});

/// The sum over these dims (negative: counted from the last), which are gone, or with `keep` have one element. bfloat16 is summed
/// in float on a rank.
template <class D>
requires(detail::is_dtensor<D>&& weft::detail::Real<typename D::value_type>) D
    sum(const D& x, const std::vector<int>& dims, bool keep = false) {
  const unsigned bits = detail::dims_of("sum", x, dims);
  const Shape whole = x.shape();
  const D y = detail::recorded(detail::sum_kept(x, bits), detail::on(x, [whole, bits, wanted = x.placements()](const D& g) {
                                 return expand(reshape(g, detail::reduced_shape(whole, bits, true)), whole, wanted);
                               }));
  return keep ? y : reshape(y, detail::reduced_shape(whole, bits, false));
}
/// The sum of all elements, of rank 0.
template <class D>
requires(detail::is_dtensor<D>&& weft::detail::Real<typename D::value_type>) D sum(const D& x) {
  return sum(x, detail::all_dims(x));
}

template <class D>
requires(detail::is_dtensor<D>) D expand(const D& x, const Shape& shape, const Placements& wanted) {
  using T = typename D::value_type;
  if (x.shape() == shape) return x;
  const auto from = detail::aligned_extents(x.shape()), to = detail::aligned_extents(shape);
  for (std::size_t dim = 0; dim < Shape::max_rank; ++dim)
    if (x.shape().rank() > shape.rank() || (from[dim] != to[dim] && from[dim] != 1))
      detail::refuse_shapes("expand", "it cannot be repeated to " + shape.text() + ": only dims of one element are", x);
  const std::size_t added = shape.rank() - x.shape().rank();
  detail::OperationRule rule = detail::elementwise_rule(int(shape.rank()), 1, 1);
  rule.moves = true;
  rule.operands[0] = {};
  std::vector<bool> repeated;
  for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
    repeated.push_back(dim < added || x.shape()[dim - added] != shape[dim]);
    if (dim >= added) rule.operands[0].append(repeated[dim] ? '.' : rule.result[int(dim)]);
  }
  const std::array<detail::OperandInfo, 1> operands{detail::info_of(x)};
  detail::Choice choice = detail::choose(rule, operands, shape, x.mesh().places());
  for (std::size_t axis = 0; axis < wanted.size(); ++axis)
    if (choice.result[axis].is_replicate() && wanted[axis].is_shard() && repeated[std::size_t(wanted[axis].dim)])
      choice.result[axis] = wanted[axis];
  detail::note_operation(x.mesh(), "expand", operands, choice, shape);
  const D own = x.moved(choice.operands[0]), y = detail::unset_result<T>(x, shape, choice.result);
  kernels::expand<T>(y.to_local().device(), detail::aligned_extents(own.to_local().shape()),
                     detail::aligned_extents(y.to_local().shape()), own.to_local().data(), y.to_local().data());
  if constexpr (weft::detail::Real<T>)
    return detail::recorded(y, detail::on(x, [before = x.shape()](const D& g) { return detail::sum_to(g, before); }));
  else return y;
}

namespace detail {

/// This rank's elements of an operand, expanded to its part of the result.
template <class T, class Exec>
Tensor<T, Exec> fitted(const Tensor<T, Exec>& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Tensor<T, Exec> y(x.device(), shape);
  kernels::expand<T>(x.device(), aligned_extents(x.shape()), aligned_extents(shape), x.data(), y.data());
  return y;
}

/// An operation of elements whose operands are expanded to `shape`: kernel(device, n, operands' elements..., result's elements).
template <class R, class F, class D, class... X>
DTensor<R, typename D::execution_space> zip(std::string_view name, const Shape& shape, unsigned linear, unsigned also,
                                            const F& kernel, const D& x, const X&... others) {
  OperationRule rule = elementwise_rule(int(shape.rank()), 1 + int(sizeof...(X)), linear, also);
  std::size_t number = 0;
  const auto letters = [&](const Shape& own) {
    Letters& of = rule.operands[number++];
    of = {};
    const std::size_t added = shape.rank() - own.rank();
    for (std::size_t dim = 0; dim < own.rank(); ++dim)
      of.append(own[dim] == shape[added + dim] ? rule.result[int(added + dim)] : '.');
  };
  letters(x.shape());
  (letters(others.shape()), ...);
  const auto local = [&](const auto& y, const auto&... parts) {
    const auto run = [&](const auto&... fit) {
      kernel(y.to_local().device(), y.to_local().size(), fit.data()..., y.to_local().data());
    };
    run(fitted(parts.to_local(), y.to_local().shape())...);
  };
  return apply<R>(name, rule, shape, local, x, others...);
}

}  // namespace detail

}  // namespace weft::dtensor
