// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of two tensors by the letters of their dims, as Einstein sums write them: dims with one letter are multiplied with
// each other, and letters that the result lacks are summed. Everything becomes batches of matrix products; an operand is copied
// only if its dims lie in no order that they take.
//
//   auto scores = einsum<"bhid,bhjd->bhij">(query, key);   // of each sample and head
//   auto mixed = einsum<"bixy,io->boxy">(field, weight);   // channels mixed at each point

#include <cstddef>
#include <type_traits>

#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/core/text_argument.hpp>
#include <weft/kernels/along_dim.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/kernels/permute.hpp>
#include <weft/operations/einsum_equation.hpp>
#include <weft/operations/products.hpp>
#include <weft/operations/rules.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

constexpr OperationRule rule_of(const Equation& e) {
  return {.operands = {e.x, e.y}, .count = 2, .result = e.result, .linear = {0b01, 0b10}};
}
template <Equation e, class PX, class PY>
inline constexpr ContractRule einsum_rule = contract_rule(rule_of(e), layout_of<PX>, layout_of<PY>);

/// The rules of all axes, without an error if they refuse the operands.
template <Equation e, class X, class Y>
struct EinsumRules {
  static constexpr bool operands = false, fits = false;
  static constexpr ContractFault fault = ContractFault::none;
  using type = X;
};
template <Equation e, class T, class E, class... PX, class... PY>
requires(std::is_same_v<Axes<typename PX::axis...>, Axes<typename PY::axis...>>) struct EinsumRules<e, Tensor<T, E, PX...>,
                                                                                                    Tensor<T, E, PY...>> {
  static constexpr bool operands = true;
  static constexpr ContractFault fault = [] {
    ContractFault first = ContractFault::none;
    (void(first = first == ContractFault::none ? einsum_rule<e, PX, PY>.fault : first), ...);
    return first;
  }();
  static constexpr bool fits = fault == ContractFault::none;
  using type = Tensor<T, E, typename Placed<typename PX::axis, einsum_rule<e, PX, PY>.kind, einsum_rule<e, PX, PY>.dim>::type...>;
};

/// The error of operands that do not fit, or of a text that is no equation.
template <TextArgument text, class X, class Y>
constexpr bool require_einsum() {
  constexpr ReadEquation read = read_equation(text.view());
  constexpr EquationFault fault = read.fault;
  static_assert(fault != EquationFault::form,
                "weft: einsum takes two operands and a result, a letter for each of at most six dims: "
                "einsum<\"bij,bjk->bik\">(x, y)");
  static_assert(fault != EquationFault::twice,
                "weft: einsum: a letter twice in one operand or in the result, which would be a diagonal: each dim has its own "
                "letter, einsum<\"bij,bjk->bik\">(x, y)");
  static_assert(fault != EquationFault::lone,
                "weft: einsum: a letter that only one operand or only the result has: a dim of one operand is also one of the "
                "result, or is summed before, sum<dim>(x)");
  if constexpr (fault != EquationFault::none) {
    return false;
  } else {
    using Rules = EinsumRules<read.equation, X, Y>;
    if constexpr (!Rules::operands) RefusedOperands<X, Y>();
    constexpr ContractFault placed = Rules::fault;
    static_assert(placed != ContractFault::partial_by_partial,
                  "weft: einsum of Partial by Partial: a product of sums is not the sum of products; reduce one operand first");
    static_assert(placed != ContractFault::not_entered,
                  "weft: einsum of an Invariant operand with a sharded or Replicated one: enter the parallel region first, "
                  "to<Replicated<axis>>(x), on tensors (context, x), or its gradient loses a sum");
    static_assert(placed != ContractFault::no_rule,
                  "weft: einsum has no rule for these placements: on each axis the operands that have a letter are all cut along "
                  "it, and an operand without it is Replicated; a cut letter that the result lacks gives a Partial result");
    return Rules::fits;
  }
}

/// The extents of the batched products, and the result's shape. Throws ShapeError if a letter has two extents.
struct EinsumExtents {
  std::size_t batch = 1, left = 1, right = 1, summed = 1;
  Shape result;
};
EinsumExtents einsum_extents(const Equation& e, const EinsumPlan& plan, NamedOperand x, NamedOperand y);

/// x with its dims in this order, [their extents] in one array, or x's elements where they are already.
template <class T, class Exec>
class Ordered {
 public:
  Ordered(Device<Exec>& device, const EinsumOrder& order, const Shape& shape, const T* x) : data_(x) {
    if (order.as_it_is) return;
    std::size_t extents[Shape::max_rank] = {};
    for (std::size_t dim = 0; dim < shape.rank(); ++dim) extents[dim] = shape[dim];
    buffer_ = device.allocate(shape.size() * sizeof(T));
    T* const out = static_cast<T*>(buffer_.get());
    kernels::permute(device, kernels::Permutation(shape.rank(), extents, order.dims), x, out);
    data_ = out;
  }
  const T* data() const { return data_; }

 private:
  Buffer buffer_;
  const T* data_;
};

/// out [batch, left, right] = x times y.
template <class T, class Exec>
void multiply_batches(Device<Exec>& device, const EinsumPlan& plan, const EinsumExtents& n, const T* x, const T* y, T* out) {
  const std::size_t size = n.batch * n.left * n.right;
  if (n.summed == 0) return fill_zero(device, out, size);
  if (plan.elementwise()) {
    const Tensor<T, Exec> products(device, {n.batch * n.summed});
    kernels::multiply(device, products.size(), x, y, plan.summed.count == 0 ? out : products.data());
    if (plan.summed.count == 0) return;
    const kernels::Along along{n.batch, n.summed, 1};
    if constexpr (std::is_same_v<T, accumulate_t<T>>)
      return kernels::sum_along<T>(device, along, products.data(), accumulate_t<T>(1), out);
    const Tensor<accumulate_t<T>, Exec> sums(device, {n.batch});
    kernels::sum_along<T>(device, along, products.data(), accumulate_t<T>(1), sums.data());
    return kernels::cast<accumulate_t<T>, T>(device, n.batch, sums.data(), out);
  }
  const auto transposed = [](const EinsumOrder& order) {
    return order.transposed ? kernels::Transpose::yes : kernels::Transpose::no;
  };
  for (std::size_t b = 0; b < n.batch; ++b)
    kernels::matmul<T, T>(device, transposed(plan.x), transposed(plan.y), n.left, n.right, n.summed, x + b * n.left * n.summed,
                          plan.x.transposed ? n.left : n.summed, y + b * n.summed * n.right,
                          plan.y.transposed ? n.summed : n.right, out + b * n.left * n.right, n.right);
}

template <Equation e, class X, class Y>
auto einsum_of(const X& x, const Y& y) {
  using T = typename X::value_type;
  static constexpr EinsumPlan plan(e);
  const EinsumExtents n = einsum_extents(e, plan, x, y);
  auto& device = x.device();
  const Ordered a(device, plan.x, x.shape(), static_cast<const T*>(x.data()));
  const Ordered b(device, plan.y, y.shape(), static_cast<const T*>(y.data()));
  typename EinsumRules<e, X, Y>::type out(device, n.result);
  if constexpr (plan.result.as_it_is) {
    multiply_batches(device, plan, n, a.data(), b.data(), out.data());
  } else {
    const Letters product = joined(plan.batch, plan.left, plan.right);
    std::size_t extents[Letters::most] = {};
    for (int dim = 0; dim < product.count; ++dim) extents[dim] = n.result[std::size_t(e.result.find(product[dim]))];
    const Tensor<T, typename X::execution_space> products(device, {out.size()});
    multiply_batches(device, plan, n, a.data(), b.data(), products.data());
    kernels::permute(device, kernels::Permutation(std::size_t(product.count), extents, plan.result.dims),
                     static_cast<const T*>(products.data()), out.data());
  }
  return out;
}
template <Equation e, class C, class X, class Y>
auto einsum_of(const Variable<C, X>& x, const Variable<C, Y>& y) {
  if constexpr (Nested<X> || Nested<Y>)
    return binary(
        x, y, [](const auto& a, const auto& b) { return einsum_of<e>(a, b); },
        [](const auto&, const auto& b, const auto&, const auto& g) {
          return einsum_of<Equation{e.result, e.y, e.x}>(g, b);
        },
        [](const auto& a, const auto&, const auto&, const auto& g) {
          return einsum_of<Equation{e.x, e.result, e.y}>(a, g);
        });
  else
    return record(x, einsum_of<e>(x.value(), y.value()),
                  from(x,
                       [y = y.value()](const auto&, const auto& g) {
                         return einsum_of<Equation{e.result, e.y, e.x}>(g, y);
                       }),
                  from(y, [x = x.value()](const auto&, const auto& g) {
                    return einsum_of<Equation{e.x, e.result, e.y}>(x, g);
                  }));
}

}  // namespace detail

namespace operations {

/// The product whose text names the dims: "bij,bjk->bik" is a batch of x [b, i, j] times y [b, j, k]. Letters that the result
/// lacks are summed; every letter is in two of the three at least, and once in each; "ij,ij->" has the result [1]. On each axis a
/// letter is cut in all operands that have it, and an operand without it is Replicated; the result is cut where its letter is, or
/// Partial if it lacks the letter. Throws ShapeError if a letter has two extents. Numerics: products of elements without a matrix
/// product are rounded to T before they are summed; else those of matmul, whose sums are in accumulate_t. As torch.einsum of two
/// operands. Gradients: einsum of g and the other operand.
template <detail::TextArgument text, AnyTensor X, AnyTensor Y>
auto einsum(const X& x, const Y& y) {
  if constexpr (!detail::require_einsum<text, X, Y>()) return detail::AlreadyRefused();
  else return detail::einsum_of<detail::read_equation(text.view()).equation>(x, y);
}

/// The same on Variables, also inside of grad.
template <detail::TextArgument text, class C, class X, class Y>
auto einsum(const Variable<C, X>& x, const Variable<C, Y>& y) {
  if constexpr (!detail::require_einsum<text, detail::bottom_t<X>, detail::bottom_t<Y>>()) return detail::AlreadyRefused();
  else return detail::einsum_of<detail::read_equation(text.view()).equation>(x, y);
}
template <detail::TextArgument text, class C, class X, Placement... R>
auto einsum(const Variable<C, X>& x, const Parameter<R...>& y) {
  return einsum<text>(x, beside(x, y));
}
template <detail::TextArgument text, class C, class X, Placement... R>
detail::AlreadyRefused einsum(const Variable<C, X>&, const Parameter<R...>&&) {
  return detail::refused_temporary<X>();
}

}  // namespace operations

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/operations/einsum_impl.hpp>
#endif
