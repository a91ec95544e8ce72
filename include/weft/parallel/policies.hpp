// SPDX-License-Identifier: Apache-2.0
#pragma once
// Policies: what ModelOptions chooses when the program runs, said in the type of a data wrapper instead.
//
//   DataParallel<models::Gpt, Reproducible> model(mesh, config);
//   FullyShardedDataParallel<models::Gpt, zero::Stage2, Reproducible> model(mesh, config);
//
// A policy is a type with `static void apply(ModelOptions&)`; DataParallel also takes a communication hook's type.

#include <type_traits>

#include <weft/parallel/model_options.hpp>
#include <weft/parallel/hook/communication_hook.hpp>

namespace weft {

/// ModelOptions::reproducible: the run has the same bits for every dp degree that divides the micro-batches, every stage of ZeRO,
/// every schedule and every pp degree.
struct Reproducible {
  template <class Options>  // else every program would compile what this asks for
  static void apply(Options& options) { options.reproducible = true; }
};

/// Layers compute in Param, the model's own scalar (models::BasicGpt<bfloat16>), and add gradients in accumulate_t<Param>; data ranks
/// send and add them in Reduce, bfloat16 or float. What is updated is a master copy in float where Param is bfloat16; stage 3 of
/// FullyShardedDataParallel keeps nothing else, and gathers it as Param. Gradient: ModelOptions::gradient, the type in which sums of
/// gradients are kept, Param or accumulate_t<Param>; void leaves the choice to the stage.
template <class Param, class Reduce, class Gradient = void>
struct MixedPrecision {
  static_assert(detail::Real<Param>, "weft: MixedPrecision's Param must be float, bfloat16, float16 or double: the type that the model's layers compute in");
  static_assert(std::is_same_v<Reduce, bfloat16> || std::is_same_v<Reduce, accumulate_t<Param>>,
                "weft: MixedPrecision's Reduce must be bfloat16, or the type in which gradients are kept: float for Param bfloat16, float16 and float, double for double");
  static_assert(std::is_void_v<Gradient> || std::is_same_v<Gradient, Param> || std::is_same_v<Gradient, accumulate_t<Param>>,
                "weft: MixedPrecision's Gradient must be Param, or the type in which layers add gradients: float for Param bfloat16, float16 and float, double for double");
  static void apply(ModelOptions& options) {
    if constexpr (std::is_same_v<Reduce, bfloat16>) options.reduce = DataType::bfloat16;
    if constexpr (!std::is_void_v<Gradient>) options.gradient = data_type_of<Gradient>;
  }
};

/// ModelOptions::quantised_gather: ZeRO++ qwZ.
struct QuantisedGather {
  static void apply(ModelOptions& options) { options.quantised_gather = true; }
};

/// ModelOptions::secondary: ZeRO++ hpZ, with nodes of so many ranks.
template <std::size_t ranks>
struct SecondaryShards {
  static void apply(ModelOptions& options) { options.secondary = ranks; }
};

/// ModelOptions::replicate: hybrid sharding.
template <std::size_t copies>
struct HybridSharding {
  static void apply(ModelOptions& options) { options.replicate = copies; }
};

namespace detail {

// By value, or as what cannot be changed: what it sets would be lost.
template <class P>
concept AppliesToACopy = requires { static_cast<void (*)(ModelOptions)>(&P::apply); } ||
                         (requires { static_cast<void (*)(const ModelOptions&)>(&P::apply); } && !requires { static_cast<void (*)(ModelOptions&)>(&P::apply); });
template <class P>
inline constexpr bool is_policy = requires(ModelOptions& options) { P::apply(options); } && !AppliesToACopy<P>;
template <class P>
inline constexpr bool is_data_policy = is_policy<P> || hook::detail::fault_of_hook<P>() == hook::detail::HookFault::none;

WEFT_HAS_MEMBER(apply)

// What is neither, and has something of a policy or of a hook: the class below says what is wrong. Of anything else a wrapper says what
// may stand there.
template <class P>
inline constexpr bool resembles_policy = !is_data_policy<P> && has_apply<P>();
template <class P>
inline constexpr bool resembles_hook = !is_data_policy<P> && !has_apply<P>() && (hook::detail::has_start<P>() || hook::detail::has_finish<P>());

template <class P>
struct CheckedDataPolicy { static constexpr bool said = true; };
template <class P>
  requires resembles_hook<P>
struct CheckedDataPolicy<P> : hook::detail::RefusedHook<P> {};
template <class P>
  requires resembles_policy<P>
struct CheckedDataPolicy<P> {
  static constexpr bool said = true, copy = AppliesToACopy<P>;
  static_assert(!copy,
                "weft: this policy's apply takes ModelOptions by value or const reference, so what it sets would be lost: write `static void apply(ModelOptions& options)`; see P in this class's template "
                "arguments");
  static_assert(copy, "weft: this policy's apply cannot be called with ModelOptions: write `static void apply(ModelOptions& options)`, static and public; see P in this class's template arguments");
};

// Does the model compute in what a policy says?
template <class Scalar, class P>
inline constexpr bool policy_fits = true;
template <class Scalar, class Param, class Reduce, class Gradient>
inline constexpr bool policy_fits<Scalar, MixedPrecision<Param, Reduce, Gradient>> = std::is_same_v<Scalar, Param>;

template <class P>
void apply_policy(ModelOptions& options) {
  if constexpr (is_policy<P>) P::apply(options);
  else options.hook = hook::make<P>();
}

// A wrapper's policy with these applied before anything is made.
template <class Base, class... Policies>
struct AppliedPolicies : Base {
  using Base::Base;
  static ModelOptions adjusted(ModelOptions options) {
    (apply_policy<Policies>(options), ...);
    return options;
  }
};
template <class Base, class... Policies>
using WithPolicies = std::conditional_t<sizeof...(Policies) == 0, Base, AppliedPolicies<Base, Policies...>>;

}  // namespace detail
}  // namespace weft
