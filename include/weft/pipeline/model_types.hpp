// SPDX-License-Identifier: Apache-2.0
#pragma once
// The types that cross the borders of a model's parts, found once for a model and a context: tokens, hidden state, loss, and the
// values that each part saves and defers. A repeated block must be a fixed point of these types.

#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <weft/comm/agreement.hpp>
#include <weft/core/text.hpp>
#include <weft/layer/context.hpp>
#include <weft/layer/layer.hpp>
#include <weft/layer/loss_sum.hpp>

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
struct InputOf<Context<C, B...>> {
  template <class T>
  using type = typename InputTensor<T, typename C::execution_space, Axes<typename B::axis...>>::type;
};

// The result of a layer's backward if the model's forward is sound, else a stand-in: one error is enough.
template <bool sound, class Layer, class Context, class Saved, class G>
struct SplitOf {
  using type = decltype(weft::backward_input(std::declval<Layer&>(), std::declval<const Context&>(), std::declval<Saved>(),
                                             std::declval<const G&>()));
};
template <class Layer, class Context, class Saved, class G>
struct SplitOf<false, Layer, Context, Saved, G> {
  using type = InputGradient<Nothing, Nothing>;
};

/// The type of a model's input with elements of T under Context.
template <class T, class Context>
using input_t = typename InputOf<Context>::template type<T>;

template <class Model, class Context>
struct ModelTypes {
  using Front = typename Model::Front;
  using Block = typename Model::Block;
  using Back = typename Model::Back;

  using Tokens = input_t<std::int32_t, Context>;
  using FrontResult = forward_of_t<Front, Context, Tokens>;
  using Hidden = typename FrontResult::output_type;
  using Gradient = gradient_t<Hidden>;
  using FrontSaved = typename FrontResult::saved_type;

  using BlockResult = forward_of_t<Block, Context, Hidden>;
  using BlockSaved = typename BlockResult::saved_type;
  static constexpr bool block_closes = std::is_same_v<typename BlockResult::output_type, Hidden>;

  // If the blocks were refused, the compiler has reported why, and the back is not examined.
  using BackResult =
      forward_of_t<Back, Context, std::conditional_t<is_refused<typename BlockResult::output_type>, AlreadyRefused, Hidden>,
                   Tokens>;
  /// True if forward compiles; else the compiler has reported the layer whose forward does not.
  static constexpr bool forwards = !is_refused<typename BackResult::output_type>;
  static constexpr bool returns_loss = is_loss<typename BackResult::output_type>;
  using Loss = std::conditional_t<returns_loss, typename BackResult::output_type, LossSum<typename Context::execution_space>>;
  using BackSaved = typename BackResult::saved_type;

  using FrontDeferred = typename SplitOf<forwards, Front, Context, FrontSaved, Gradient>::type::deferred_type;
  using BlockDeferred =
      typename SplitOf<forwards, Block, Context, BlockSaved, gradient_t<typename BlockResult::output_type>>::type::deferred_type;
  using BackDeferred = typename SplitOf<returns_loss, Back, Context, BackSaved, gradient_t<Loss>>::type::deferred_type;
};

WEFT_COLD inline void require_same_loss(const Communicator& ranks, std::span<const double> values) {
  if (ranks.size() == 1) return;
  std::vector<std::uint64_t> words;
  for (const double value : values)
    words.push_back(value != value ? 0 : std::bit_cast<std::uint64_t>(value));  // NaN has many bit patterns
  if (same_on_all(ranks, words)) return;
  throw_error<UsageError>({"the loss of ", ranks.axis(), " rank ", first_difference(ranks, words).rank, " is not that of ",
                           ranks.axis(),
                           " rank 0, though its type says that they are the same (Invariant): is it a sum over a rank's own "
                           "columns? Bring the losses together before sum_losses: to<Invariant<",
                           ranks.axis(), ">>(context, x), log_sum_exp(context, z, columns)"});
}
/// The axes on which a loss is a term of a sum; losses are added up over exactly these axes.
template <class Loss>
struct LossAxes;
template <class E, class... P>
struct LossAxes<LossSum<E, P...>> {
  template <class Context>
  static void all_reduce(const Context& context, std::span<double> values) {
    [[maybe_unused]] const auto sum = [&]<class Q>(std::type_identity<Q>) {
      if constexpr (kind_of<Q> == Kind::partial) context.comm(typename Q::axis{}).all_reduce(values);
    };
    (sum(std::type_identity<P>{}), ...);
  }
  /// On each axis on which the loss is Invariant, every rank must have the same bits: throws UsageError on all ranks of the axis
  /// otherwise.
  template <class Context>
  static void require_same(const Context& context, std::span<const double> values) {
    [[maybe_unused]] const auto compare = [&]<class Q>(std::type_identity<Q>) {
      if constexpr (kind_of<Q> == Kind::invariant) require_same_loss(context.comm(typename Q::axis{}), values);
    };
    (compare(std::type_identity<P>{}), ...);
  }
};

}  // namespace weft::detail
