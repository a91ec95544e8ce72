// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrix products of DTensors.
//
//   auto y = matmul(x, w);   // [..., m, k] by [k, n], or by [..., k, n] with the same leading dims
//
//   left operand     right operand    result
//   cut along m      whole            cut along m
//   whole            cut along n      cut along n
//   cut along k      cut along k      partial
//   cut along a leading dim: the right operand too, or whole if it has no such dim: cut alike
//   partial          whole            partial; and the other way round

#include <cstddef>

#include <weft/dtensor/apply.hpp>
#include <weft/kernels/matmul.hpp>

namespace weft::dtensor {

namespace detail {

/// The products of a matmul and of its gradients: y = x w, dx = g wᵀ and dw = xᵀ g.
enum class Product { forward, left_gradient, right_gradient };

/// `shared`: the matrix w has no leading dims. The operands are (x, w), (g, w) or (x, g).
template <class D>
D product(Product which, bool shared, const D& l, const D& r) {
  using T = typename D::value_type;
  const int rank = int(l.shape().rank()), batch = rank - 2;
  const auto letters = [&](bool leading, char row, char column) {
    return (leading ? alphabet(batch) : Letters()).append(row).append(column);
  };
  const Letters x = letters(true, 'm', 'k'), w = letters(!shared, 'k', 'n'), y = letters(true, 'm', 'n');
  OperationRule rule = weft::detail::matmul_rule(batch, shared);
  if (which == Product::left_gradient) {
    rule.operands = {y, w};
    rule.result = x;
  } else if (which == Product::right_gradient) {
    rule.operands = {x, y};
    rule.result = w;
  }
  const auto extent = [](const D& of, int from_last) { return of.shape()[of.shape().rank() - std::size_t(from_last)]; };
  Shape shape = l.shape();
  if (which == Product::right_gradient && shared) shape = {extent(l, 1), extent(r, 1)};
  else if (which == Product::right_gradient)
    shape[std::size_t(batch)] = extent(l, 1), shape[std::size_t(batch + 1)] = extent(r, 1);
  else shape[std::size_t(batch + 1)] = extent(r, which == Product::forward ? 1 : 2);
  const auto local = [&](const D& out, const D& a, const D& b) {
    const auto &left = a.to_local().shape(), &right = b.to_local().shape();
    const std::size_t last = left.rank() - 1;
    // With a shared matrix, the rows of all leading dims are one matrix.
    const std::size_t columns = left[last], all_rows = left.rows(),
                      count = shared ? 1 : all_rows / std::max<std::size_t>(1, left[last - 1]),
                      rows = shared ? all_rows : left[last - 1], right_columns = right[right.rank() - 1];
    const bool none = left.size() == 0 && !shared && left[last - 1] == 0;
    const std::size_t batches = none ? 0 : count;
    auto& device = out.to_local().device();
    if (none && which == Product::right_gradient) weft::detail::fill_zero(device, out.to_local().data(), out.to_local().size());
    for (std::size_t i = 0; i < batches; ++i) {
      const T* from = a.to_local().data() + i * rows * columns;
      using kernels::Transpose;
      if (which == Product::forward)
        kernels::matmul<T>(device, Transpose::no, Transpose::no, rows, right_columns, columns, from, columns,
                           b.to_local().data() + i * columns * right_columns, right_columns,
                           out.to_local().data() + i * rows * right_columns, right_columns);
      else if (which == Product::left_gradient) {
        const std::size_t inner = right[right.rank() - 2];  // g [rows, n] by w [k, n], transposed
        kernels::matmul<T>(device, Transpose::no, Transpose::yes, rows, inner, columns, from, columns,
                           b.to_local().data() + i * inner * columns, columns, out.to_local().data() + i * rows * inner, inner);
      } else
        kernels::matmul<T>(device, Transpose::yes, Transpose::no, columns, right_columns, rows, from, columns,
                           b.to_local().data() + i * rows * right_columns, right_columns,
                           out.to_local().data() + i * columns * right_columns, right_columns);
    }
  };
  return apply<T>(which == Product::forward ? "matmul" : "backward of matmul", rule, shape, local, l, r);
}

}  // namespace detail

/// x [..., m, k] times y [k, n] or [..., k, n]. Throws ShapeError for other shapes. Numerics: sums over k in accumulate_t; over
/// an axis that cuts k, the ranks' sums are added in the order of ranks.
template <class D>
requires(detail::is_dtensor<D>&& weft::detail::Real<typename D::value_type>) D matmul(const D& x, const D& y) {
  detail::require_one_mesh("matmul", x, y);
  const std::size_t a = x.shape().rank(), b = y.shape().rank();
  bool fits = a >= 2 && (b == 2 || b == a) && x.shape()[a - 1] == y.shape()[b - 2];
  for (std::size_t dim = 0; fits && b == a && dim + 2 < a; ++dim) fits = x.shape()[dim] == y.shape()[dim];
  if (!fits)
    detail::refuse_shapes("matmul",
                          "expected [..., m, k] by [k, n], or by [..., k, n] with the same leading dims; reshape or "
                          "expand one of them",
                          x, y);
  const bool shared = b == 2;
  using detail::Product;
  return detail::recorded(
      detail::product(Product::forward, shared, x, y),
      detail::on(x, [=, y = y.detach()](const D& g) { return detail::product(Product::left_gradient, shared, g, y); }),
      detail::on(y, [=, x = x.detach()](const D& g) { return detail::product(Product::right_gradient, shared, x, g); }));
}

}  // namespace weft::dtensor
