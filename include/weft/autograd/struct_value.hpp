// SPDX-License-Identifier: Apache-2.0
#pragma once
// Structs as the values that layers take and return. A user's class template, whose members are Variables in a Module's forward
// and tensors between layers and between the stages of a pipeline, where each member travels as a tensor of its own. Nothing is
// declared: an aggregate's members are found by structured bindings.
//
//   template <class A, class B>
//   struct Flow {
//     A velocity;
//     B pressure;
//   };
//   template <class A, class B>
//   Flow(A, B) -> Flow<A, B>;   // for clang before 17
//
//   auto forward(const auto& flow) const { return Flow{flow.velocity - flow.pressure, flow.pressure}; }   // of a Module
//
// A struct has up to 32 members and no base class. A member may be such a struct itself.

#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/variable.hpp>
#include <weft/core/fields.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// S<A...> as S<To<A>::type...>; without a type if S does not take those.
template <class S, template <class> class To>
struct WithArguments {};
template <template <class...> class S, class... A, template <class> class To>
requires requires { typename S<typename To<A>::type...>; }
struct WithArguments<S<A...>, To> {
  using type = S<typename To<A>::type...>;
};

template <class S>
inline constexpr bool is_instance = false;
template <template <class...> class S, class... A>
inline constexpr bool is_instance<S<A...>> = sizeof...(A) > 0;

/// Whether All<M> holds for each of the n members of S.
template <template <class> class All>
struct EachMember {
  template <class... M>
  auto operator()(const M&...) const {
    return std::bool_constant<(All<M>::value && ...)>();
  }
};
template <class S, int n, template <class> class All>
inline constexpr bool each_member = decltype(with_fields<n>(std::declval<const S&>(), EachMember<All>()))::value;

template <class M>
struct IsTensorMember;
template <class S>
constexpr bool has_tensor_members() {
  if constexpr (!is_instance<S> || !std::is_aggregate_v<S>) return false;
  else if constexpr (field_count<S> < 1) return false;
  else return each_member<S, field_count<S>, IsTensorMember>;
}
/// A struct as it is between layers: its members are tensors, Nothing or such structs.
template <class S>
concept StructOfTensors = has_tensor_members<S>();
template <class M>
struct IsTensorMember : std::bool_constant<AnyTensor<M> || std::is_same_v<M, Nothing> || StructOfTensors<M>> {};

/// Whether an X can be a value between layers, and go from stage to stage of a pipeline.
template <class X>
inline constexpr bool is_value = IsTensorMember<X>::value;
template <class... X>
inline constexpr bool is_value<std::tuple<X...>> = (is_value<X> && ...);

/// Refuses a result Y of a layer L that no later layer could take.
template <class L, class Y>
constexpr auto hidden_of() {  // auto: an unevaluated use prints the error, too
  static_assert(
      is_value<Y> || std::is_same_v<Y, AlreadyRefused>,
      "weft: this layer returns something else than a tensor, or a std::tuple or a struct of tensors: a struct is a class "
      "template with a parameter for each member, `template <class A, class B> struct Flow { A velocity; B pressure; };`, "
      "without constructors, private members, base classes or members of other types; see L and Y in this function's "
      "template arguments");
  return std::type_identity<std::conditional_t<is_value<Y>, Y, AlreadyRefused>>();
}

/// The type, between layers, of a value with type V in a forward: X for Variable<C, X>, likewise for a struct's members.
template <class V>
struct ValueOf {};
template <class C, class X>
struct ValueOf<Variable<C, X>> {
  using type = X;
};
template <class C, class X>
struct ValueOf<Constant<C, X>> {
  using type = X;
};
template <class A>
struct ValueOfArgument {  // another argument than a member's type stays
  using type = A;
};
template <class A>
requires requires { typename ValueOf<A>::type; }
struct ValueOfArgument<A> : ValueOf<A> {};
template <class M>
struct IsVariableMember;
template <class V>
constexpr bool has_variable_members() {
  if constexpr (!is_instance<V> || is_variable<V> || !std::is_aggregate_v<V>) return false;
  else if constexpr (!requires { typename WithArguments<V, ValueOfArgument>::type; }) return false;
  else if constexpr (!StructOfTensors<typename WithArguments<V, ValueOfArgument>::type>) return false;
  else return each_member<V, field_count<typename WithArguments<V, ValueOfArgument>::type>, IsVariableMember>;
}
/// A struct as it is in a forward: its members are Variables or such structs.
template <class V>
concept StructOfVariables = has_variable_members<V>();
template <class M>
struct IsVariableMember : std::bool_constant<is_variable<M> || StructOfVariables<M>> {};
template <StructOfVariables V>
struct ValueOf<V> : WithArguments<V, ValueOfArgument> {};
template <class V>
using value_of_t = typename ValueOf<V>::type;

/// The type, in a forward under Context, of a value with type X between layers.
template <class Context, class X>
struct VariableOf {
  using type = Variable<Context, X>;
};
template <class Context>
struct VariableUnder {
  template <class A>
  struct Argument {
    using type = A;
  };
  template <class A>
  requires(AnyTensor<A> || StructOfTensors<A>) struct Argument<A> : VariableOf<Context, A> {
  };
};
template <class Context, StructOfTensors X>
struct VariableOf<Context, X> : WithArguments<X, VariableUnder<Context>::template Argument> {};
template <class Context, class X>
using variable_of_t = typename VariableOf<Context, X>::type;

template <class A>
struct GradientOfArgument {
  using type = A;
};
template <class A>
requires(AnyTensor<A> || StructOfTensors<A>) struct GradientOfArgument<A> : GradientOf<A> {
};
template <StructOfTensors X>
struct GradientOf<X> : WithArguments<X, GradientOfArgument> {};

/// f(member...) of a struct, f(part...) of a tuple.
template <class S, class F>
decltype(auto) with_parts(S& of, F&& f) {
  using X = std::remove_const_t<S>;
  if constexpr (StructOfVariables<X>) return with_fields<field_count<value_of_t<X>>>(of, std::forward<F>(f));
  else if constexpr (StructOfTensors<X>) return with_fields<field_count<X>>(of, std::forward<F>(f));
  else return std::apply(std::forward<F>(f), of);
}

/// Whether a V, or a part of it, has been refused by the compiler.
template <class V>
inline constexpr bool has_refused = std::is_same_v<V, AlreadyRefused>;
template <template <class...> class S, class... A>
requires(!is_variable<S<A...>>) inline constexpr bool has_refused<S<A...>> = (has_refused<A> || ...);

}  // namespace weft::detail
