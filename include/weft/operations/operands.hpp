// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operands of operations, as refusals of calls recognise them (operations/refused.hpp): a value of a forward, a tensor, or
// several of them in one object.
//
//   static_assert(detail::Operand<std::pair<Variable<C, X>, Variable<C, Y>>>);   // the result of topk, which no function takes

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/tensor/tensor.hpp>

namespace weft {

template <class Context, class X>
class Variable;
template <class... Rules>
class Parameter;

namespace detail {

template <class V>
inline constexpr bool is_operand = std::is_base_of_v<AlreadyRefused, V>;
template <class C, class X>
inline constexpr bool is_operand<Variable<C, X>> = true;
template <class... R>
inline constexpr bool is_operand<Parameter<R...>> = true;
/// A value of a forward: a Variable, a Parameter, or one that was refused.
template <class V>
concept ForwardOperand = is_operand<std::remove_cvref_t<V>>;
template <class V>
concept SingleOperand = ForwardOperand<V> || AnyTensor<V>;
/// True for several operands in one object, such as the pair that topk returns.
template <class V>
inline constexpr bool are_operands = false;
template <class... V>
inline constexpr bool are_operands<std::tuple<V...>> = (SingleOperand<V> || ...);
template <class V, class W>
inline constexpr bool are_operands<std::pair<V, W>> = SingleOperand<V> || SingleOperand<W>;
template <class V, std::size_t n>
inline constexpr bool are_operands<std::array<V, n>> = SingleOperand<V>;
template <class V>
concept Operand = SingleOperand<V> || are_operands<V>;
template <class V>
inline constexpr bool is_silent = std::is_base_of_v<AlreadyRefused, V>;
template <class V, class W>
inline constexpr bool is_silent<std::pair<V, W>> = is_silent<V> || is_silent<W>;
template <class V, std::size_t n>
inline constexpr bool is_silent<std::array<V, n>> = is_silent<V>;

struct NoOperand {
  template <class V>
  requires(!Operand<V>) NoOperand(const V&) {}
};

}  // namespace detail

}  // namespace weft
