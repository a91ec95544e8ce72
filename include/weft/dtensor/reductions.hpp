// SPDX-License-Identifier: Apache-2.0
#pragma once
// Means, largest and smallest elements, norms and softmax of DTensors along dims. sum is in dtensor/expand.hpp.
//
//   auto m = mean(x, {0});          // over the rows
//   auto p = softmax(x, -1);
//
//   operation                takes on an axis                    result
//   mean                     any                                 partial, if the axis cuts a reduced dim; else cut alike
//   max, min                 cuts                                a partial maximum or minimum; else cut alike
//   argmax                   cuts                                whole, if the axis cuts the dim; else cut alike
//   softmax, log_softmax     cuts                                cut alike
// Along a cut dim argmax and softmax all-reduce two numbers a row, and softmax's gradient one, unless it is cheaper to move x.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include <weft/dtensor/elementwise.hpp>
#include <weft/dtensor/expand.hpp>
#include <weft/kernels/along_cut_dim.hpp>
#include <weft/kernels/along_dim.hpp>

namespace weft::dtensor {

namespace detail {

// The largest element along a dim and its place; of no elements -infinity, at 0.
template <class T, class Exec>
void largest_along(Device<Exec>& device, const kernels::Along& shape, const T* x, T* largest, std::int32_t* places) {
  if (shape.extent != 0) return kernels::max_along<T>(device, shape, x, largest, places);
  const std::size_t n = shape.outer * shape.inner;
  kernels::fill<T>(device, n, largest, T(-std::numeric_limits<accumulate_t<T>>::infinity()));
  weft::detail::fill_zero(device, places, n);
}

// The largest (sign 1) or smallest (-1) elements, with the reduced dims of one element. A rank without elements has the one that
// changes no result.
template <class D>
D extreme_kept(const D& x, unsigned dims, int sign) {
  using T = typename D::value_type;
  using A = accumulate_t<T>;
  const auto local = [=](const D& y, const D& a) {
    auto& device = a.to_local().device();
    typename D::Local own = a.to_local();
    if (sign < 0) {
      own = typename D::Local(device, own.shape());
      kernels::scale<T>(device, own.size(), A(-1), a.to_local().data(), own.data());
    }
    reduce_dims(own, dims, y.to_local(), [&](const kernels::Along& shape, const T* from, T* to) {
      const Tensor<std::int32_t, typename D::execution_space> places(device, {shape.outer * shape.inner});
      largest_along(device, shape, from, to, places.data());
    });
    if (sign < 0) kernels::scale<T>(device, y.to_local().size(), A(-1), y.to_local().data(), y.to_local().data());
  };
  const Reduction reduction = sign > 0 ? Reduction::max : Reduction::min;
  return apply<T>(name_of(reduction), weft::detail::reduction_rule(int(x.shape().rank()), dims, true, reduction),
                  reduced_shape(x.shape(), dims, true), local, x);
}
template <class D>
D extreme_of(const D& x, const std::vector<int>& dims, bool keep, int sign) {
  const std::string_view name = name_of(sign > 0 ? Reduction::max : Reduction::min);
  const unsigned bits = dims_of(name, x, dims);
  for (std::size_t dim = 0; dim < x.shape().rank(); ++dim)
    if ((bits >> dim & 1u) && x.shape()[dim] == 0) refuse_shapes(name, "a dim without elements has none", x);
  const D kept = extreme_kept(x, bits, sign);
  const D y = recorded(kept, on(x, [kept, bits, own = x.detach()](const D& g) {
                         const D equal = map_two("backward of max", own, kept, 0, 0, Equal());
                         return equal * (g / sum_kept(equal, bits));
                       }));
  return keep ? y : reshape(y, reduced_shape(x.shape(), bits, false));
}

// The rule of a function along a dim that takes cuts of it, too: it then all-reduces `bytes` for each row.
inline OperationRule along_cut_rule(int rank, int operands, unsigned linear, int dim, std::size_t bytes) {
  OperationRule rule = elementwise_rule(rank, operands, linear);
  rule.inside.append(alphabet(rank)[dim]);
  rule.inside_bytes = bytes;
  return rule;
}

template <bool Log, class D>
void softmax_local(const char* name, int dim, const D& y, const D& a) {
  using T = typename D::value_type;
  using A = accumulate_t<T>;
  const auto& x = a.to_local();
  auto& device = x.device();
  const kernels::Along shape = along(x.shape(), std::size_t(dim));
  if (!is_cut(a, dim)) {
    if (x.size() != 0) kernels::softmax_along<Log, T>(device, shape, x.data(), y.to_local().data());
    return;
  }
  const std::size_t rows = shape.outer * shape.inner;
  const typename D::Local top(device, {rows});
  const Tensor<A, typename D::execution_space> sums(device, {rows});
  const Tensor<std::int32_t, typename D::execution_space> places(device, {rows});
  largest_along(device, shape, x.data(), top.data(), places.data());
  reduce_inside(name, a, dim, top, 1, Reduction::max);
  kernels::powers_along<T>(device, shape, x.data(), top.data(), sums.data());
  reduce_inside(name, a, dim, sums, 1, Reduction::sum);
  if (x.size() != 0) kernels::softmax_from_sums<Log, T>(device, shape, x.data(), top.data(), sums.data(), y.to_local().data());
}
template <bool Log, class D>
void softmax_backward_local(int dim, const D& dx, const D& y, const D& g) {
  using T = typename D::value_type;
  const auto& own = y.to_local();
  auto& device = own.device();
  const kernels::Along shape = along(own.shape(), std::size_t(dim));
  const T *const from = own.data(), *const d = g.to_local().data();
  if (!is_cut(y, dim)) {
    if (own.size() != 0) kernels::softmax_along_backward<Log, T>(device, shape, from, d, dx.to_local().data());
    return;
  }
  const Tensor<accumulate_t<T>, typename D::execution_space> sums(device, {shape.outer * shape.inner});
  kernels::softmax_gradient_sums<Log, T>(device, shape, from, d, sums.data());
  reduce_inside("backward of softmax", y, dim, sums, 1, Reduction::sum);
  if (own.size() != 0) kernels::softmax_gradient_from_sums<Log, T>(device, shape, from, d, sums.data(), dx.to_local().data());
}

template <bool Log, class D>
D softmax_of(const char* name, const D& x, int dim) {
  using T = typename D::value_type;
  using A = accumulate_t<T>;
  dim = one_dim(name, x, dim);
  const int rank = int(x.shape().rank());
  const D y = apply<T>(
      name, along_cut_rule(rank, 1, 0, dim, sizeof(T) + sizeof(A)), x.shape(),
      [=](const D& out, const D& a) { softmax_local<Log>(name, dim, out, a); }, x);
  return recorded(y, on(x, [=](const D& g) {
                    return apply<T>(
                        "backward of softmax", along_cut_rule(rank, 2, 0b10, dim, sizeof(A)), y.shape(),
                        [dim](const D& dx, const D& own, const D& d) { softmax_backward_local<Log>(dim, dx, own, d); }, y, g);
                  }));
}

}  // namespace detail

/// The mean over these dims. The mean of no elements is NaN.
template <RealTensor D>
D mean(const D& x, const std::vector<int>& dims, bool keep = false) {
  const unsigned bits = detail::dims_of("mean", x, dims);
  std::size_t count = 1;
  for (std::size_t dim = 0; dim < x.shape().rank(); ++dim) count *= bits >> dim & 1u ? x.shape()[dim] : 1;
  return sum(x, dims, keep) * (1.0 / double(count));
}
template <RealTensor D>
D mean(const D& x) {
  return mean(x, detail::all_dims(x));
}

/// The largest element over these dims, as torch.amax: the gradient is divided evenly among equal ones. Throws ShapeError if a
/// dim is empty. NaN is the largest element on a rank; ranks are compared as all_reduce(max) does.
template <RealTensor D>
D max(const D& x, const std::vector<int>& dims, bool keep = false) {
  return detail::extreme_of(x, dims, keep, 1);
}
template <RealTensor D>
D max(const D& x) {
  return max(x, detail::all_dims(x));
}
/// The smallest element; as max.
template <RealTensor D>
D min(const D& x, const std::vector<int>& dims, bool keep = false) {
  return detail::extreme_of(x, dims, keep, -1);
}
template <RealTensor D>
D min(const D& x) {
  return min(x, detail::all_dims(x));
}

/// The place of the first largest element along a dim, which is gone; without a gradient.
template <RealTensor D>
auto argmax(const D& x, int dim) {
  using T = typename D::value_type;
  using I = DTensor<std::int32_t, typename D::execution_space>;
  dim = detail::one_dim("argmax", x, dim);
  if (x.shape()[std::size_t(dim)] == 0) detail::refuse_shapes("argmax", "a dim without elements has no largest one", x);
  detail::OperationRule rule = weft::detail::reduction_rule(int(x.shape().rank()), 1u << dim, false, Reduction::max);
  rule.inside.append(rule.operands[0][dim]);
  rule.inside_bytes = sizeof(T) + sizeof(std::int32_t);
  const auto local = [dim](const I& y, const D& a) {
    auto& device = a.to_local().device();
    const kernels::Along shape = detail::along(a.to_local().shape(), std::size_t(dim));
    const auto& places = y.to_local();
    const typename D::Local own(device, {places.size()});
    detail::largest_along(device, shape, a.to_local().data(), own.data(), places.data());
    if (!detail::is_cut(a, dim)) return;
    const typename D::Local most(device, {places.size()});
    weft::detail::copy_rows(device, 1, own.size(), own.data(), own.size(), most.data(), own.size());
    detail::reduce_inside("argmax", a, dim, most, 1, Reduction::max);
    kernels::claim_places<T>(device, places.size(), own.data(), most.data(), a.part().first[std::size_t(dim)], places.data());
    detail::reduce_inside("argmax", a, dim, places, 1, Reduction::min);
    kernels::settle_places(device, places.size(), places.data());
  };
  return detail::apply<std::int32_t>("argmax", rule, detail::reduced_shape(x.shape(), 1u << dim, false), local, x.detach());
}

/// exp(x) over its sum along `dim`, as torch.softmax; a negative dim counts from the last.
template <RealTensor D>
D softmax(const D& x, int dim) {
  return detail::softmax_of<false>("softmax", x, dim);
}
/// The logarithm of softmax(x, dim), as torch.log_softmax.
template <RealTensor D>
D log_softmax(const D& x, int dim) {
  return detail::softmax_of<true>("log_softmax", x, dim);
}

/// The 2-norm over these dims. Its gradient at 0 is NaN.
template <RealTensor D>
D norm(const D& x, const std::vector<int>& dims, bool keep = false) {
  return sqrt(sum(x * x, dims, keep));
}
template <RealTensor D>
D norm(const D& x) {
  return norm(x, detail::all_dims(x));
}

}  // namespace weft::dtensor
