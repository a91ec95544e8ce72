// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sum of two tensors of one type and shape, without the checks of operations::add: the tape sums the contributions to a
// gradient with it.
//
//   gradient = sum_of(gradient, std::move(contribution));

#include <cstddef>
#include <memory>

#include <weft/kernels/elementwise.hpp>
#include <weft/tensor/pending_rows.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/write_rows.hpp>

namespace weft::detail {

/// x + y of pending rows, which is pending too: a piece of it is the sum of both pieces.
template <AnyTensor X>
X pending_sum_of(const X& x, const X& y, const Shape& shape) {
  using T = typename X::value_type;
  auto& device = x.device();
  return X(device, shape,
           std::make_shared<PendingRows>(
               x.pending()->pieces(), x.rows(), [&device, bytes = x.size() * sizeof(T)] { return device.allocate(bytes); },
               [x, y](std::size_t first, std::size_t count, void* out) {
                 T* const sum = static_cast<T*>(out);
                 write_rows(x, first, count, sum);
                 const Tensor<T, typename X::execution_space> added(x.device(), {count, x.columns()});
                 write_rows(y, first, count, added.data());
                 kernels::add<T>(x.device(), added.size(), sum, added.data(), sum);
               }));
}

/// x + y, [shape of x], both of the same shape and placement. Reuses y's memory if nothing else holds it. If the rows of both are
/// pending in as many pieces, those of the sum are.
template <AnyTensor X>
X sum_of(const X& x, X y) {
  const Shape shape = x.shape().with_cuts_of(y.shape());
  if (x.pending() != nullptr && y.pending() != nullptr && x.pending()->pieces() == y.pending()->pieces())
    return pending_sum_of(x, y, shape);
  X out = y.unique() && y.shape().cuts() == shape.cuts() ? y : X(x.device(), shape);
  kernels::add<typename X::value_type>(x.device(), x.size(), x.data(), y.data(), out.data());
  out.mark_summed(x.summed() && y.summed());
  return out;
}

}  // namespace weft::detail
