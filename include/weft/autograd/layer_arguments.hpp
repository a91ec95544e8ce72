// SPDX-License-Identifier: Apache-2.0
#pragma once
// The arguments of a layer's constructor, which are a context and sizes, and the refusal of others: without it a compiler lists
// its candidates and does not name the missing context.
//
//   template <class... A>
//   requires detail::WrongArguments<detail::LayerArguments<1, std::size_t, double>, A...> explicit Norm(const A&...)
//       : Norm(detail::refused_layer<Norm>()) {
//     static_assert(sizeof...(A) > 99, "weft: Norm takes ...");
//   }

#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/core/error.hpp>

namespace weft::detail {

/// The arguments of a layer's constructor behind its context, of which the first `needed` have no default.
template <std::size_t needed, class... S>
struct LayerArguments {};
// Whether A... are a context and such arguments. Arguments in braces are not checked.
template <std::size_t needed, class... S, class C, class... A>
constexpr bool are_arguments(LayerArguments<needed, S...>, std::type_identity<C>, std::type_identity<A>...) {
  if constexpr (!requires { typename C::scalar; } || sizeof...(A) < needed || sizeof...(A) > sizeof...(S)) return false;
  else return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return (std::is_convertible_v<A, std::tuple_element_t<I, std::tuple<S...>>> && ...);
    }
  (std::index_sequence_for<A...>());
}
template <class S>
constexpr bool are_arguments(S) {
  return false;
}
/// A... are no arguments of a layer that takes a context and S. One object of another class is not meant as arguments.
template <class S, class... A>
concept WrongArguments = !are_arguments(S(), std::type_identity<A>()...) &&
                         (sizeof...(A) != 1 || ((std::is_arithmetic_v<A> || std::is_convertible_v<A, std::string_view> ||
                                                 requires {
                                                   typename A::scalar;
                                                   typename A::device_type;
                                                 }) &&
                                                ...));
/// Stands in for a layer whose constructor was refused.
template <class L>
const L& refused_layer() {
  throw_error<UsageError>({"a layer made of other arguments than it takes"});
}

}  // namespace weft::detail
