// SPDX-License-Identifier: Apache-2.0
#pragma once
// DTensors with the same elements in other dims, or some of their elements: reshape, permute, transpose, slice, concat.
//
//   auto heads = transpose(reshape(x, {batch, length, heads, width}), 1, 2);
//
//   operation          takes on an axis                                result
//   reshape            cuts of a dim that stays, or of the first of    cut alike
//                      merged or split dims, if its ranks divide both
//   permute            any                                             cut where the dim has gone
//   slice, concat      cuts                                            cut alike
// Along a dim that one axis cuts, slice and concat send the elements whose rank changes (dtensor/shifts.hpp), unless it is
// cheaper to move the operands; if several axes cut it, these are moved. All of them take partial operands and give a partial
// result.

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <weft/dtensor/apply.hpp>
#include <weft/dtensor/redistribute.hpp>
#include <weft/dtensor/shifts.hpp>
#include <weft/kernels/permute.hpp>

namespace weft::dtensor {

namespace detail {

/// The rule of a reshape: runs of dims with equal products become each other. Dims of one element are cut nowhere.
inline OperationRule reshape_rule(const Shape& from, const Shape& to) {
  OperationRule rule{.linear = {1}, .moves = true};
  for (std::size_t dim = 0; dim < from.rank(); ++dim) rule.operands[0].append('.');
  for (std::size_t dim = 0; dim < to.rank(); ++dim) rule.result.append('.');
  char letter = 'a';
  std::size_t i = 0, j = 0;
  const auto skip_ones = [](const Shape& shape, std::size_t& dim) {
    while (dim < shape.rank() && shape[dim] == 1) ++dim;
  };
  for (;; ++letter) {
    skip_ones(from, i);
    skip_ones(to, j);
    if (i == from.rank() || j == to.rank()) return rule;
    const std::size_t first = i, first_to = j;
    std::size_t product = from[i++], product_to = to[j++];
    while (product != product_to) {
      if (product < product_to && i < from.rank()) product *= from[i++];
      else if (j < to.rank()) product_to *= to[j++];
      else return rule;  // of no elements
    }
    rule.operands[0][int(first)] = rule.result[int(first_to)] = letter;
    if (from[first] != to[first_to]) rule.even.append(letter);
  }
}

}  // namespace detail

/// The elements in row-major order, in another shape of as many; no copy. Throws ShapeError for another number of elements.
template <class D>
requires(detail::is_dtensor<D>) D reshape(const D& x, const Shape& shape) {
  using Local = typename D::Local;
  if (shape == x.shape()) return x;
  if (shape.size() != x.shape().size())
    detail::refuse_shapes("reshape", "there is no such tensor " + shape.text() + ": the numbers of elements differ", x);
  const auto rule = detail::reshape_rule(x.shape(), shape);
  const std::array<detail::OperandInfo, 1> operands{detail::info_of(x)};
  const detail::Choice choice = detail::choose(rule, operands, shape, x.mesh().places());
  detail::note_operation(x.mesh(), "reshape", operands, choice, shape);
  const Local local = x.moved(choice.operands[0]).to_local();
  const Local viewed = weft::detail::view_of<Local>(local, part_of(shape, x.mesh().places(), choice.result).shape);
  const D y = D::from_local(x.mesh(), viewed, choice.result, shape);
  if constexpr (weft::detail::Real<typename D::value_type>) {
    const Shape before = x.shape();
    return detail::recorded(y, detail::on(x, [before](const D& g) { return reshape(g, before); }));
  } else return y;
}

/// Dim d of the result is x's dim dims[d]. Throws UsageError unless `dims` has each dim of x once.
template <class D>
requires(detail::is_dtensor<D>) D permute(const D& x, const std::vector<int>& dims) {
  using T = typename D::value_type;
  std::vector<int> back(x.shape().rank(), -1);
  bool valid = dims.size() == back.size();
  for (std::size_t to = 0; valid && to < dims.size(); ++to) {
    valid = dims[to] >= 0 && std::size_t(dims[to]) < back.size() && back[std::size_t(dims[to])] < 0;
    if (valid) back[std::size_t(dims[to])] = int(to);
  }
  if (!valid)
    throw_error<UsageError>(
        {"dtensor: permute of ", x.shape().text(), ": the dims must be 0 to ", int(x.shape().rank()) - 1, ", each once"});
  Shape shape = x.shape();
  for (std::size_t to = 0; to < dims.size(); ++to) shape[to] = x.shape()[std::size_t(dims[to])];
  const auto local = [&](const D& y, const D& a) {
    const Shape& from = a.to_local().shape();
    std::array<std::size_t, Shape::max_rank> extents{};
    for (std::size_t dim = 0; dim < from.rank(); ++dim) extents[dim] = from[dim];
    kernels::permute<T>(y.to_local().device(), kernels::Permutation(from.rank(), extents.data(), dims.data()),
                        a.to_local().data(), y.to_local().data());
  };
  const D y = detail::apply<T>("permute", weft::detail::permutation_rule(dims), shape, local, x);
  if constexpr (weft::detail::Real<T>) return detail::recorded(y, detail::on(x, [back](const D& g) { return permute(g, back); }));
  else return y;
}
/// x with two dims exchanged; negative dims are counted from the last.
template <class D>
requires(detail::is_dtensor<D>) D transpose(const D& x, int a = -2, int b = -1) {
  const int rank = int(x.shape().rank());
  std::vector<int> dims;
  for (int dim = 0; dim < rank; ++dim) dims.push_back(dim);
  for (int* const dim : {&a, &b}) {
    if (*dim < 0) *dim += rank;
    if (*dim < 0 || *dim >= rank)
      throw_error<UsageError>({"dtensor: transpose of ", x.shape().text(), ": there are no two dims to exchange"});
  }
  std::swap(dims[std::size_t(a)], dims[std::size_t(b)]);
  return permute(x, dims);
}

namespace detail {

inline OperationRule along_rule_of(const Shape& shape, int dim, std::size_t operands) {
  OperationRule rule = weft::detail::along_rule(int(shape.rank()), dim, (1u << operands) - 1);
  rule.moves = true;
  return rule;
}
template <class D>
int one_dim(std::string_view name, const D& x, int dim) {
  const int rank = int(x.shape().rank());
  if (dim < -rank || dim >= rank)
    throw_error<UsageError>({"dtensor: ", name, " of ", x.shape().text(), " along dim ", dim, ": it has ", rank, " dims"});
  return dim < 0 ? dim + rank : dim;
}

/// x at [first, first + its extent) of a dim of `extent` elements, zeros around it.
template <class D>
D padded(const D& x, int dim, std::size_t first, std::size_t extent) {
  using T = typename D::value_type;
  const auto local = [&](const D& y, const D& a) {
    weft::detail::fill_zero(y.to_local().device(), y.to_local().data(), y.to_local().size());
    put_slice(y.to_local().device(), y.to_local().shape(), std::size_t(dim), {first, a.to_local().shape()[std::size_t(dim)]},
              a.to_local().data(), y.to_local().data());
  };
  OperationRule rule = along_rule_of(x.shape(), dim, 1);
  rule.moves = false;  // of a maximum's terms, zeros could be the largest
  const Shape shape = weft::detail::with_extent(x.shape(), std::size_t(dim), extent);
  const DimShift shift{x.shape()[std::size_t(dim)], extent, std::ptrdiff_t(first)};
  if (const auto y = shifted("pad", dim, shape, rule, std::array{Shifted<D>{x.detach(), shift}})) return *y;
  return apply<T>("pad", rule, shape, local, x);
}

}  // namespace detail

/// The elements [first, last) of a dim. Throws ShapeError if x has no such elements.
template <class D>
requires(detail::is_dtensor<D>) D slice(const D& x, int dim, std::size_t first, std::size_t last) {
  using T = typename D::value_type;
  dim = detail::one_dim("slice", x, dim);
  const std::size_t extent = x.shape()[std::size_t(dim)];
  if (first > last || last > extent)
    throw_error<ShapeError>(
        {"dtensor: slice of ", x.shape().text(), ": there are no elements [", first, ", ", last, ") of dim ", dim});
  const auto local = [&](const D& y, const D& a) {
    detail::take_slice(y.to_local().device(), a.to_local().shape(), std::size_t(dim), {first, last - first}, a.to_local().data(),
                       y.to_local().data());
  };
  const Shape shape = weft::detail::with_extent(x.shape(), std::size_t(dim), last - first);
  const detail::OperationRule rule = detail::along_rule_of(x.shape(), dim, 1);
  const detail::DimShift shift{extent, last - first, -std::ptrdiff_t(first)};
  const auto sent = detail::shifted("slice", dim, shape, rule, std::array{detail::Shifted<D>{x.detach(), shift}});
  const D y = sent ? *sent : detail::apply<T>("slice", rule, shape, local, x);
  if constexpr (weft::detail::Real<T>)
    return detail::recorded(y, detail::on(x, [=](const D& g) { return detail::padded(g, dim, first, extent); }));
  else return y;
}

/// Tensors one after the other along a dim; their other extents are equal. Throws ShapeError if they are not.
template <class D>
requires(detail::is_dtensor<D>) D concat(const D& x, const D& y, int dim) {
  using T = typename D::value_type;
  dim = detail::one_dim("concat", x, dim);
  const std::size_t at = std::size_t(dim), first = x.shape()[at];
  if (y.shape().rank() != x.shape().rank() || !(weft::detail::with_extent(y.shape(), at, first) == x.shape()))
    detail::refuse_shapes("concat", "the extents of all dims but " + std::to_string(dim) + " must be equal", x, y);
  const std::size_t second = y.shape()[at];
  const auto local = [&](const D& z, const D& a, const D& b) {
    const auto put = [&](const D& from, std::size_t begin) {
      detail::put_slice(z.to_local().device(), z.to_local().shape(), at, {begin, from.to_local().shape()[at]},
                        from.to_local().data(), z.to_local().data());
    };
    put(a, 0);
    put(b, first);
  };
  detail::OperationRule rule = detail::along_rule_of(x.shape(), dim, 2);
  rule.count = 2;
  rule.operands[1] = rule.operands[0];
  detail::require_one_mesh("concat", x, y);
  const Shape shape = weft::detail::with_extent(x.shape(), at, first + second);
  const auto sent = detail::shifted("concat", dim, shape, rule,
                                    std::array{detail::Shifted<D>{x.detach(), {first, first + second, 0}},
                                               detail::Shifted<D>{y.detach(), {second, first + second, std::ptrdiff_t(first)}}});
  const D z = sent ? *sent : detail::apply<T>("concat", rule, shape, local, x, y);
  if constexpr (weft::detail::Real<T>)
    return detail::recorded(z, detail::on(x, [=](const D& g) { return slice(g, dim, 0, first); }),
                            detail::on(y, [=](const D& g) { return slice(g, dim, first, first + second); }));
  else return z;
}
/// More than two tensors, one after the other.
template <class D>
requires(detail::is_dtensor<D>) D concat(const std::vector<D>& all, int dim) {
  if (all.empty()) throw_error<UsageError>({"dtensor: concat of no tensors"});
  D y = all[0];
  for (std::size_t i = 1; i < all.size(); ++i) y = concat(y, all[i], dim);
  return y;
}

}  // namespace weft::dtensor
