// SPDX-License-Identifier: Apache-2.0
// Structs as values of layers: the valid ones, the types of their gradients, and gradients by finite differences through Modules,
// a layer with its own backward, and unused members.

#include <weft/autograd/struct_value.hpp>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <weft/nn/sequential.hpp>
#include <weft/operations/parts.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

template <class A, class B>
struct Flow {
  A velocity;
  B pressure;
};
template <class A, class B>
Flow(A, B) -> Flow<A, B>;
template <class A>
struct Twins {
  A left, right;
};
template <class A>
Twins(A, A) -> Twins<A>;
template <class Tag, class A>
struct Tagged {
  A value;
};
template <AnyVariable A>
struct Constrained {
  A value;
};
template <class A>
struct Derived : Twins<A> {};
template <class A>
struct WithNumber {
  A value;
  double time;
};
template <class A>
class Hidden {
  A value;
};
struct Euler {};

using Exec = DefaultDevice::execution_space;
using One = Context<Compute<Exec, float>>;
using X = Tensor<float, Exec, Shard<dp, 0>>;
using Ids = Tensor<std::int32_t, Exec, Shard<dp, 0>>;
using R = Tensor<float, Exec, Replicated<tp>>;
using P = Tensor<float, Exec, Partial<tp>>;
template <class T>
using V = Variable<One, T>;

using detail::StructOfTensors;
using detail::StructOfVariables;
static_assert(StructOfTensors<Flow<X, Ids>> && StructOfTensors<Twins<Flow<X, R>>> && StructOfTensors<Tagged<Euler, X>>);
static_assert(StructOfTensors<Flow<X, Nothing>>);
static_assert(!StructOfTensors<X> && !StructOfTensors<std::tuple<X, X>> && !StructOfTensors<std::pair<X, X>>);
static_assert(!StructOfTensors<std::vector<X>> && !StructOfTensors<Flow<X, int>> && !StructOfTensors<Flow<V<X>, V<R>>>);
static_assert(!StructOfTensors<WithNumber<X>> && !StructOfTensors<Hidden<X>> && !StructOfTensors<Derived<X>>);
static_assert(!StructOfTensors<Euler> && !StructOfTensors<int>);

static_assert(StructOfVariables<Flow<V<X>, V<R>>> && StructOfVariables<Twins<Flow<V<X>, V<R>>>>);
static_assert(StructOfVariables<Tagged<Euler, V<X>>>);
static_assert(!StructOfVariables<Flow<X, R>> && !StructOfVariables<Flow<V<X>, R>> && !StructOfVariables<V<X>>);
static_assert(!StructOfVariables<std::tuple<V<X>, V<R>>> && !StructOfVariables<std::vector<V<X>>>);
static_assert(!StructOfVariables<WithNumber<V<X>>> && !StructOfVariables<Hidden<V<X>>> && !StructOfVariables<Derived<V<X>>>);
static_assert(!StructOfVariables<Constrained<V<X>>>);  // it requires Variables instead of tensors

static_assert(std::is_same_v<gradient_t<Flow<X, R>>, Flow<X, P>>);
static_assert(std::is_same_v<gradient_t<Twins<Flow<R, Ids>>>, Twins<Flow<P, Nothing>>>);
static_assert(std::is_same_v<gradient_t<std::tuple<Flow<R, X>, P>>, std::tuple<Flow<P, X>, R>>);
static_assert(std::is_same_v<detail::value_of_t<Twins<Flow<V<X>, V<R>>>>, Twins<Flow<X, R>>>);
static_assert(std::is_same_v<detail::variable_of_t<One, Twins<Flow<X, R>>>, Twins<Flow<V<X>, V<R>>>>);
static_assert(std::is_same_v<detail::value_of_t<Tagged<Euler, V<X>>>, Tagged<Euler, X>>);
static_assert(detail::has_refused<Flow<V<X>, detail::AlreadyRefused>> && !detail::has_refused<Flow<V<X>, V<R>>>);

/// x [rows, 6] -> a struct of its columns, one member a struct.
struct Split : Module<Split> {
  auto forward(const auto& x) const { return Flow{slice<1>(x, 0, 2), Twins{slice<1>(x, 2, 2), square(slice<1>(x, 4, 2))}}; }
};
/// A struct with a parameter, and an unused member.
struct Middle : Module<Middle> {
  Parameter<> gain;
  explicit Middle(const auto& context) : gain(context, "gain", {2}, normal(1)) {}
  auto forward(const auto& flow) const {
    return Flow{times_row(flow.velocity, gain) * flow.pressure.right, Twins{exp(flow.pressure.left), flow.velocity}};
  }
};
/// With its own backward, on tensors.
struct Exchange : Primitive<Exchange> {
  auto forward(const auto&, const auto& flow) const {
    return Result{Flow{scale(flow.velocity, 3), Twins{flow.pressure.right, flow.pressure.left}}, Nothing{}};
  }
  auto backward(const auto&, Nothing, const auto& g) const {
    return Flow{scale(g.velocity, 3), Twins{g.pressure.right, g.pressure.left}};
  }
};
struct Join : Module<Join> {
  bool all = true;
  auto forward(const auto& flow) const {
    return all ? concat<1>(flow.velocity * flow.pressure.left, flow.pressure.left, tanh(flow.pressure.right))
               : concat<1>(flow.velocity, flow.velocity, 2 * flow.velocity);
  }
};
/// The same inside one Module: structs are passed to Modules and to layers, and some of them are recomputed in backward.
struct Nested : Module<Nested> {
  Split split;
  Middle middle;
  Exchange exchange;
  Join join;
  explicit Nested(const auto& context) : middle(context) {}
  auto forward(const auto& x) const {
    auto flow = exchange(middle(split(x)));
    auto again = recompute(
        [](const auto& a, const auto& b) {
          return Flow{a * b, Twins{b, square(a)}};
        },
        flow.velocity, flow.pressure.left);
    return join(Flow{again.velocity, Twins{again.pressure.left, flow.pressure.right}});
  }
};

}  // namespace

TEST_CASE("gradients of structs between layers, by finite differences") {
  for (const bool all : {true, false}) {
    const auto make = [&](const auto& context) {
      Join join;
      join.all = all;
      return Sequential(Split(), Exchange(), Middle(context), Exchange(), join);
    };
    const testing::CheckReport report = testing::check_layer(make, {3, 6});
    CHECK(report.compared != 0);
    CHECK(report.error < 1e-6);
  }
}

TEST_CASE("gradients of structs inside a Module, by finite differences") {
  CHECK(testing::check_layer([](const auto& context) { return Nested(context); }, {3, 6}).error < 1e-6);
  CHECK(testing::check_layer_on<dp>(2, [](const auto& context) { return Nested(context); }, {4, 6}).compared != 0);
}
