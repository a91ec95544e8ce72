// SPDX-License-Identifier: Apache-2.0
// Arithmetic of tensors whose placements do not fit.
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

// section: add_of_different_placements
// A Partial term added to a whole one: the whole one would be added on every rank.
// expect: the two terms are placed differently
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
auto go(X x, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Partial<tp>> y) { return add(x, y); }
#else
auto go(const Both& context, X x, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Partial<tp>> y) {
  return add(x, to_layout_of<X>(context, y));
}
#endif

// section: check_layer_on_of_a_partial
// A layer that is refused on an axis and not on one rank: check_layer_on reports it once.
// expect: this operation is not linear, but its input is Partial
struct Own : Module<Own> {
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  Own(const auto& context) : up(context, "up", {16, 8}, normal(1)), down(context, "down", {8, 16}, normal(1)) {}
  auto forward(const auto& x) const {
    auto y = matmul(silu(matmul(to<Replicated<tp>>(x), up)), down);
#ifdef WEFT_FAIL
    return silu(y);
#else
    return y;
#endif
  }
};

void go() {
  testing::check_layer_on<tp>(2, [](const auto& context) { return Residual(Own(context)); }, {4, 8});
}

// section: divide_by_partial
// A quotient of sums is not the sum of quotients.
// expect: divide: these placements do not divide
// mention: Partial divisor
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(const Over&, X<Replicated<tp>> x, X<Partial<tp>> y) { return divide(x, y); }
#else
auto go(const Over&, X<Partial<tp>> x, X<Replicated<tp>> y) { return divide(x, y); }
#endif

// section: exp_of_partial
// The exponential of a term is not a term of the exponential.
// expect: this operation is not linear, but its input is Partial
// mention: to<Invariant<axis>>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(const Over&, X<Partial<tp>> x) { return exp(x); }
#else
auto go(const Over& context, X<Partial<tp>> x) { return exp(to<Invariant<tp>>(context, x)); }
#endif

// section: sin_of_partial
// The sine of a sum is no sum of sines.
// expect: this operation is not linear, but its input is Partial
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<Partial<tp>> x) { return sin(x); }
#else
auto go(X<Invariant<tp>> x) { return sin(x); }
#endif

// section: number_beside_shard
// A number that each rank applies to its own part, without a sum of its gradient.
// expect: times_scalar: the number lies as the tensor
// mention: to<Replicated<axis>>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x, X<Invariant<tp>> s) { return times_scalar(x, s); }
#else
auto go(const Over& context, X<Shard<tp, 1>> x, X<Invariant<tp>> s) { return times_scalar(x, to<Replicated<tp>>(context, s)); }
#endif

// section: partial_by_partial
// A product of sums is not the sum of products.
// expect: matmul of Partial by Partial
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
using Y = Tensor<float, Kokkos::DefaultExecutionSpace, Partial<tp>>;
auto go(Y a, Y b) { return matmul(a, b); }
#else
using Y = Tensor<float, Kokkos::DefaultExecutionSpace, Partial<tp>>;
using Z = Tensor<float, Kokkos::DefaultExecutionSpace, Replicated<tp>>;
auto go(Y a, Z b) { return matmul(a, b); }
#endif

// section: partial_into_nonlinear
// GELU of a term of a sum is not a term of the GELU.
// expect: not linear, but its input is Partial
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
auto go(const Both& context, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Partial<tp>> y) {
  return Gelu{}.forward(context, y);
}
#else
auto go(const Both& context, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Partial<tp>> y) {
  return Gelu{}.forward(context, to<Invariant<tp>>(context, y));
}
#endif

// section: broadcast_of_an_invariant
// A whole factor beside a cut one: each rank has a term of its gradient, which Invariant does not have.
// expect: times: these placements do not multiply
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<Shard<tp, 1>> x, X<Invariant<tp>> column) { return x * column; }
#else
auto go(X<Shard<tp, 1>> x, X<Replicated<tp>> column) { return x * column; }
#endif

// section: subtract_of_other_types
// A difference of two element types.
// expect: subtract: the two terms are placed differently, or hold different element types
// mention: cast<T>.y.
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<Invariant<tp>> x, Tensor<double, Kokkos::DefaultExecutionSpace, Invariant<tp>> y) { return subtract(x, y); }
#else
auto go(X<Invariant<tp>> x, Tensor<double, Kokkos::DefaultExecutionSpace, Invariant<tp>> y) {
  return subtract(x, cast<float>(y));
}
#endif
