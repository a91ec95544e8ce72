// SPDX-License-Identifier: Apache-2.0
// Products of matrices.
#include <weft/operations/batched.hpp>
#include <weft/weft.hpp>

using namespace weft;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

using Exec = Kokkos::DefaultExecutionSpace;
using W = Tensor<bfloat16, Exec, Replicated<dp>>;

// section: batched_matmul_no_rule
// One operand's batch is cut, the other's is whole.
// expect: batched_matmul has no rule for these placements
// mention: the batch is cut in both
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 0>> x, X<Replicated<tp>> y) { return batched_matmul(x, y); }
#else
auto go(const Over& context, X<Shard<tp, 0>> x, X<Replicated<tp>> y) { return batched_matmul(x, to<Shard<tp, 0>>(context, y)); }
#endif

// section: dot_of_other_types
// A scalar product of two element types.
// expect: the operands hold different element types
// mention: cast<T>.x.
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<Invariant<tp>> x, Tensor<double, Kokkos::DefaultExecutionSpace, Invariant<tp>> y) { return dot(x, y); }
#else
auto go(X<Invariant<tp>> x, Tensor<double, Kokkos::DefaultExecutionSpace, Invariant<tp>> y) { return dot(x, cast<float>(y)); }
#endif

// section: dot_of_sums
// A scalar product of sums is not the sum of scalar products.
// expect: dot: both lie alike, or one is Partial
// mention: to_layout_of<X>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(const Over&, X<Partial<tp>> x) { return dot(x, x); }
#else
auto go(const Over&, X<Partial<tp>> x, X<Replicated<tp>> y) { return dot(x, y); }
#endif

// section: element_types_of_add
// A term in double and one in bfloat16.
// expect: different element types, such as double beside bfloat16: .*Context::scalar
using X = Tensor<bfloat16, Exec, Shard<dp, 0>>;

#ifdef WEFT_FAIL
auto go(X x, Tensor<double, Exec, Shard<dp, 0>> y) { return add(x, y); }
#else
auto go(X x, X y) { return add(x, y); }
#endif

// section: element_types_of_linear
// A bias in double with a product in bfloat16.
// expect: different element types, such as double beside bfloat16: .*Context::scalar
using X = Tensor<bfloat16, Exec, Shard<dp, 0>>;

#ifdef WEFT_FAIL
auto go(X x, W w, Tensor<double, Exec, Replicated<dp>> b) { return linear<0>(x, w, b); }
#else
auto go(X x, W w, W b) { return linear<0>(x, w, b); }
#endif

// section: element_types_of_matmul
// A weight in double with an input in bfloat16.
// expect: different element types, such as double beside bfloat16: .*Context::scalar
using X = Tensor<bfloat16, Exec, Shard<dp, 0>>;

#ifdef WEFT_FAIL
auto go(X x, Tensor<double, Exec, Replicated<dp>> y) { return matmul(x, y); }
#else
auto go(X x, W y) { return matmul(x, y); }
#endif

// section: element_types_of_times
// A tensor in double with the model's in bfloat16.
// expect: different element types, such as double beside bfloat16: .*Context::scalar
using X = Tensor<bfloat16, Exec, Shard<dp, 0>>;

#ifdef WEFT_FAIL
auto go(X x, Tensor<double, Exec, Shard<dp, 0>> y) { return times(x, y); }
#else
auto go(X x, X y) { return times(x, y); }
#endif

// section: axes_in_other_order
// A weight that names its axes in another order than the input.
// expect: name their axes in different order
using X = Tensor<float, Exec, Shard<dp, 0>, Replicated<tp>>;

#ifdef WEFT_FAIL
auto go(X x, Tensor<float, Exec, Shard<tp, 0>, Replicated<dp>> w) { return matmul(x, w); }
#else
auto go(X x, Tensor<float, Exec, Replicated<dp>, Shard<tp, 0>> w) { return matmul(x, w); }
#endif

// section: no_rule
// Rows of both operands are sharded: the product would need rows of one with all rows of the other.
// expect: matmul has no rule for these placements
using X = Tensor<float, Exec, Shard<dp, 0>, Shard<tp, 0>>;

#ifdef WEFT_FAIL
auto go(X x, Tensor<float, Exec, Replicated<dp>, Shard<tp, 1>> w) { return matmul(x, w); }
#else
auto go(X x, Tensor<float, Exec, Replicated<dp>, Replicated<tp>> w) { return matmul(x, w); }
#endif

// section: of_other_axes
// A weight whose type omits an axis of the input's type.
// expect: the operands name different axes
using X = Tensor<float, Exec, Shard<dp, 0>, Replicated<tp>>;

#ifdef WEFT_FAIL
auto go(X x, Tensor<float, Exec, Replicated<dp>> w) { return matmul(x, w); }
#else
auto go(X x, Tensor<float, Exec, Replicated<dp>, Shard<tp, 0>> w) { return matmul(x, w); }
#endif

// section: operands_of_other_axes
// A tensor made without tp, with one whose type has tp.
// expect: the operands name different axes
// mention: make both in one context
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<Invariant<tp>> x, X<> v) { return times_column(x, v); }
#else
auto go(X<Invariant<tp>> x, X<Invariant<tp>> v) { return times_column(x, v); }
#endif
