// SPDX-License-Identifier: Apache-2.0
#pragma once
// The placement of a model's inputs: dim 0, the samples (or the tokens of a language model), is cut over the axes whose ranks
// have samples of their own; on every other axis all ranks have the same.
//
//   input_t<std::int32_t, Context>   // Tensor<std::int32_t, Exec, Shard<dp, 0>, Replicated<tp>>

#include <type_traits>

#include <weft/context/context.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

// On data axes and cp each rank has its own tokens; on every other axis the ranks see the same tokens. Stages of a pipeline share
// no tensors, so pp has no placement; the axes of the expert mesh place only the tensors that experts work on.
template <class A>
struct InputPlacement {
  using type = Replicated<A>;
};
template <class A>
requires is_data_axis<A>
struct InputPlacement<A> {
  using type = Shard<A, 0>;
};
template <>
struct InputPlacement<cp> {
  using type = Shard<cp, 0>;
};
// A user-defined axis: all ranks compute the same, until one of the user's layers does otherwise.
template <class A>
requires(A::id >= axis_count && !is_data_axis<A>) struct InputPlacement<A> {
  using type = Invariant<A>;
};

template <class A>
inline constexpr bool is_expert_axis = std::is_same_v<A, ep> || std::is_same_v<A, etp> || std::is_same_v<A, edp>;
template <class T, class E, class Bound, class... P>
struct InputTensor;
template <class T, class E, class... P>
struct InputTensor<T, E, Axes<>, P...> {
  using type = Tensor<T, E, P...>;
};
template <class T, class E, class A, class... R, class... P>
struct InputTensor<T, E, Axes<A, R...>, P...> {
  using type = typename std::conditional_t<std::is_same_v<A, pp> || is_expert_axis<A>, InputTensor<T, E, Axes<R...>, P...>,
                                           InputTensor<T, E, Axes<R...>, P..., typename InputPlacement<A>::type>>::type;
};

template <class Context>
struct InputOf;
template <class C, class... B>
struct InputOf<StepContext<C, B...>> {
  template <class T>
  using type = typename InputTensor<T, typename C::execution_space, Axes<typename B::axis...>>::type;
};
template <class C, class... B>
struct InputOf<Context<C, B...>> : InputOf<StepContext<C, B...>> {};

/// The type of a model's input with elements of T under Context.
template <class T, class Context>
using input_t = typename InputOf<Context>::template type<T>;

}  // namespace weft::detail
