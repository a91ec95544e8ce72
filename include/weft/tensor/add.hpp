// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sum of two tensors of one type and shape, without the checks of operations::add: the tape sums the contributions to a
// gradient with it.
//
//   gradient = sum_of(gradient, std::move(contribution));

#include <weft/kernels/elementwise.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// x + y, [shape of x], both of the same shape and placement. Reuses y's memory if nothing else holds it.
template <AnyTensor X>
X sum_of(const X& x, X y) {
  const Shape shape = x.shape().with_cuts_of(y.shape());
  X out = y.unique() && y.shape().cuts() == shape.cuts() ? y : X(x.device(), shape);
  kernels::add<typename X::value_type>(x.device(), x.size(), x.data(), y.data(), out.data());
  out.mark_summed(x.summed() && y.summed());
  return out;
}

}  // namespace weft::detail
