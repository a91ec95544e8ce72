// SPDX-License-Identifier: Apache-2.0
// The placement rules as values are those of the typed operations, for every placement of one axis.

#include <doctest/doctest.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include <weft/operations/along_dim.hpp>
#include <weft/operations/batched.hpp>
#include <weft/operations/elementwise.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/index_select.hpp>
#include <weft/operations/parts.hpp>
#include <weft/operations/products.hpp>
#include <weft/operations/rules.hpp>
#include <weft/tensor/placement_rules.hpp>

using namespace weft;
using namespace weft::detail;

namespace {

// Calls f with each placement of operands: whole, cut along one of four dims, partial. A dim of -1 is no cut.
template <class F>
void for_each_placement(F&& f) {
  f.template operator()<Replicated<dp>>();
  f.template operator()<Shard<dp, 0>>();
  f.template operator()<Shard<dp, 1>>();
  f.template operator()<Shard<dp, 2>>();
  f.template operator()<Shard<dp, 3>>();
  f.template operator()<Partial<dp>>();
}
template <class F>
void for_each_pair(F&& f) {
  for_each_placement([&]<class A>() { for_each_placement([&]<class B>() { f.template operator()<A, B>(); }); });
}

// The table of operations/rules.hpp, written a second time: dims that a sum removes, or a permutation moves.
constexpr int after_sum(int dim, int summed) { return dim < summed ? dim : dim - 1; }

}  // namespace

TEST_CASE("typed rules of one operand give the table's placements") {
  for_each_placement([]<class P>() {
    const int dim = shard_dim<P>;
    const auto is = [](auto rule, AxisLayout expected) {
      using Q = typename decltype(rule)::template of<P>;
      return layout_of<Q> == expected;
    };
    const AxisLayout as_is = layout_of<P>, terms{Kind::partial};
    const auto cut = [&](int to) { return dim < 0 ? as_is : AxisLayout{Kind::shard, to}; };
    CHECK(is(SumOver<0>(), dim == 0 ? terms : cut(after_sum(dim, 0))));
    CHECK(is(SumOver<2>(), dim == 2 ? terms : cut(after_sum(dim, 2))));
    const int places[] = {1, 3, 2, 0};  // of dims 0 to 3 in permute<3, 0, 2, 1>
    CHECK(is(Permuted<3, 0, 2, 1>(), dim < 0 ? as_is : cut(places[dim])));
    if (dim != 2) CHECK(is(Flattened<1, 2>(), dim > 2 ? cut(dim - 1) : as_is));
    CHECK(is(Unflattened<1, 3>(), dim > 1 ? cut(dim + 2) : as_is));
  });
}

TEST_CASE("typed rules of products, quotients and lookups are those of the values") {
  int taken = 0;
  for_each_pair([&]<class A, class B>() {
    constexpr AxisLayout a = layout_of<A>, b = layout_of<B>;
    // x [m, k] times y [k, n]: contract<0, 1>; DTensor's matmul.
    constexpr ContractRule typed = contract_rule(a.kind, a.dim, b.kind, b.dim, 0, 1);
    const auto value = result_on(matmul_rule(0, false), {a, b});
    CHECK((typed.fault == ContractFault::none) == value.has_value());
    if (value) CHECK(*value == AxisLayout{typed.kind, typed.dim});
    // Batched products.
    if constexpr (a.dim < 3 && b.dim < 3) {
      using Batched = BatchedRule<A, B, 0, 1>;
      const auto batched = result_on(matmul_rule(1, false), {a, b});
      CHECK((Batched::rule.fault == ContractFault::none) == batched.has_value());
      if (batched) CHECK(layout_of<typename Batched::type> == *batched);
    }
    // Products and quotients, element by element.
    constexpr bool alike = a == b && a.kind != Kind::partial, whole_b = b.kind == Kind::replicated;
    const auto quotient = result_on(elementwise_rule(4, 2, 0b01), {a, b});
    CHECK(quotient.has_value() == (alike || (a.kind == Kind::partial && whole_b)));
    using Typed = BroadcastAxis<Arithmetic::quotient, A, B>;  // takes others too, whose shapes differ
    if (quotient) {
      CHECK(Typed::fits);
      CHECK(*quotient == layout_of<typename Typed::type>);
    }
    CHECK(result_on(elementwise_rule(4, 2, 0b11), {a, b}).has_value() == (a == b));
    CHECK(result_on(elementwise_rule(4, 2, 0), {a, b}).has_value() == alike);
    // Rows by number; over data axes a typed table of samples is cut beside its ids, which a DTensor's is not.
    if constexpr (b.dim <= 0 && !(a.dim == 0)) {
      OperationRule rule{.operands = {"rw", "i"}, .count = 2, .result = "iw", .linear = {0b01}};
      const auto selected = result_on(rule, {a, b});
      if constexpr (a.dim < 2)
        CHECK(selected.has_value() ==
              SelectRule<typename Placed<tp, a.kind, a.dim>::type, typename Placed<tp, b.kind, b.dim>::type, CommonIds>::fits);
    }
    taken += value.has_value();
  });
  CHECK(taken == 6);  // whole, two cuts that stay, one that is summed, two partial by whole
}

TEST_CASE("typed selections, softmax and slices take what the rules as values take") {
  using Exec = DefaultDevice::execution_space;
  int selected = 0, along = 0;
  for_each_pair([&]<class C, class P>() {
    using Condition = Tensor<std::uint8_t, Exec, C>;
    using X = Tensor<double, Exec, P>;
    const auto value = result_on(elementwise_rule(4, 3, 0b110), {layout_of<C>, layout_of<P>, layout_of<P>});
    CHECK(value.has_value() == lie_alike<X, Condition>);  // what operations::where asserts
    if constexpr (lie_alike<X, Condition>) {
      using Y = decltype(operations::where(std::declval<Condition>(), std::declval<X>(), std::declval<X>()));
      CHECK(*value == layout_of<P>);
      CHECK(std::is_same_v<Y, X>);
    }
    selected += value.has_value();
  });
  CHECK(selected == 6);  // whole, four cuts, terms of a whole condition
  for_each_placement([&]<class P>() {
    using X = Tensor<double, Exec, P>;
    const auto each_dim = [&]<int... Dim>(std::integer_sequence<int, Dim...>) {
      const auto one = [&]<int D>() {
        constexpr bool whole = !sharded_along<X, D>, term = kind_of<P> == Kind::partial;
        const auto part = result_on(along_rule(4, D, 1), {layout_of<P>}), scores = result_on(along_rule(4, D, 0), {layout_of<P>});
        CHECK(part.has_value() == whole);               // what operations::slice asserts
        CHECK(scores.has_value() == (whole && !term));  // what operations::softmax asserts
        if constexpr (whole) {
          CHECK(*part == layout_of<P>);
          CHECK(std::is_same_v<decltype(operations::slice<D>(std::declval<X>(), 0, 1)), X>);
        }
        if constexpr (whole && !term) {
          CHECK(*scores == layout_of<P>);
          CHECK(std::is_same_v<decltype(operations::softmax<D>(std::declval<X>())), X>);
        }
        along += part.has_value() + scores.has_value();
      };
      (one.template operator()<Dim>(), ...);
    };
    each_dim(std::make_integer_sequence<int, 4>());
  });
  CHECK(along == 2 * (4 + 4 * 3) + 4);  // whole and cut along another dim, and parts of terms
}

TEST_CASE("a rule of three operands, and one that communicates inside") {
  constexpr OperationRule where = elementwise_rule(2, 3, 0b110);
  CHECK(result_on(where, {{Kind::replicated}, {Kind::partial}, {Kind::partial}}) == AxisLayout{Kind::partial});
  CHECK(!result_on(where, {{Kind::partial}, {Kind::partial}, {Kind::partial}}));
  CHECK(!result_on(where, {{Kind::shard, 0}, {Kind::partial}, {Kind::partial}}));
  OperationRule inside{.operands = {"rv", "r"}, .count = 2, .result = "r"};
  inside.inside.append('v');
  CHECK(result_on(inside, {{Kind::shard, 1}, {Kind::replicated}}) == AxisLayout{Kind::replicated});
  CHECK(!result_on(inside, {{Kind::shard, 1}, {Kind::shard, 0}}));
  CHECK(result_on(elementwise_rule(2, 2, 3), {{Kind::invariant}, {Kind::invariant}}) == AxisLayout{Kind::invariant});
}
