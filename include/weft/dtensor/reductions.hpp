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
//   argmax                   cuts of other dims                  cut alike
//   softmax, log_softmax     cuts of other dims                  cut alike

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/dtensor/elementwise.hpp>
#include <weft/dtensor/expand.hpp>
#include <weft/kernels/along_dim.hpp>

namespace weft::dtensor {

namespace detail {

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
      if (shape.extent == 0)
        return kernels::fill<T>(device, shape.outer * shape.inner, to, T(-std::numeric_limits<A>::infinity()));
      const Tensor<std::int32_t, typename D::execution_space> places(device, {shape.outer * shape.inner});
      kernels::max_along<T>(device, shape, from, to, places.data());
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

template <bool Log, class D>
D softmax_of(const char* name, const D& x, int dim) {
  using T = typename D::value_type;
  dim = one_dim(name, x, dim);
  const auto forward = [dim](const D& y, const D& a) {
    if (a.to_local().size() == 0) return;
    kernels::softmax_along<Log, T>(y.to_local().device(), along(a.to_local().shape(), std::size_t(dim)), a.to_local().data(),
                                   y.to_local().data());
  };
  const int rank = int(x.shape().rank());
  const D y = apply<T>(name, weft::detail::along_rule(rank, dim, 0), x.shape(), forward, x);
  return recorded(y, on(x, [=](const D& g) {
                    const auto backward = [dim](const D& dx, const D& own, const D& d) {
                      if (own.to_local().size() == 0) return;
                      kernels::softmax_along_backward<Log, T>(dx.to_local().device(),
                                                              along(own.to_local().shape(), std::size_t(dim)),
                                                              own.to_local().data(), d.to_local().data(), dx.to_local().data());
                    };
                    OperationRule rule = weft::detail::along_rule(rank, dim, 0b10);
                    rule.count = 2;
                    rule.operands[1] = rule.operands[0];
                    return apply<T>("backward of softmax", rule, y.shape(), backward, y, g);
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
  rule.operands[0][dim] = '.';
  const auto local = [dim](const I& y, const D& a) {
    if (a.to_local().size() == 0) return;
    Tensor<T, typename D::execution_space> unused(a.to_local().device(), y.to_local().shape());
    kernels::max_along<T>(a.to_local().device(), detail::along(a.to_local().shape(), std::size_t(dim)), a.to_local().data(),
                          unused.data(), y.to_local().data());
  };
  return detail::apply<std::int32_t>("argmax", rule, detail::reduced_shape(x.shape(), 1u << dim, false), local, x.detach());
}

template <RealTensor D>
D softmax(const D& x, int dim) {
  return detail::softmax_of<false>("softmax", x, dim);
}
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
