// SPDX-License-Identifier: Apache-2.0
#pragma once
// Policies: options of ModelOptions in the type of a wrapper. A policy sets its value before anything is constructed, whatever
// the options were, and nothing else depends on its type.
//
//   DataParallel<models::Gpt, Reproducible> model(mesh, config);
//   FullyShardedDataParallel<models::Gpt, zero::Stage2, Reproducible> model(mesh, config);
//   ContextParallel<PipelineParallel<models::Llama, schedule::Zbv>, Ulysses> model(mesh, config);
//
// A policy is a type with `static void apply(ModelOptions&)`. DataParallel also takes the type of a communication hook,
// PipelineParallel that of a schedule.

#include <type_traits>

#include <weft/parallel/hook/communication_hook.hpp>
#include <weft/parallel/model_options.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>

namespace weft {

/// ModelOptions::shard.stage: the state that FullyShardedDataParallel shards over the data ranks. Bytes per rank for P parameters
/// over N data ranks, with AdamW:
///
///               float               bfloat16, float16        double
///   Stage1      8 P + 8 P / N       4 P + 12 P / N           16 P + 16 P / N
///   Stage2      4 P + 12 P / N      2 P + 14 P / N            8 P + 24 P / N
///   Stage3      16 P / N            16 P / N                 32 P / N
///
/// (parameter + gradient + optimizer). For 16-bit models stages 1 and 2 keep sums of gradients in 16 bits, where each micro-batch
/// is added in float and rounded once, or in float (ModelOptions::numerics.gradient: 6 P + 12 P / N and 2 P + 16 P / N). Stage 3
/// keeps only the master copy, which is rounded when a unit is gathered, and gradients in float. Transfers take more: up to two
/// gathered units in stage 3, up to two units of whole gradients, a sum of a unit's shards. With ModelOptions::shard.replicate, N
/// is dp / replicate; with shard.over_domain, dp is multiplied by the ranks of the domain axes. `secondary` adds P / secondary
/// values. `offload` takes the optimizer's bytes, and in stage 3 the parameters', off the device, except for those of the largest
/// parameter, which come and go (on a GPU also those of the next parameter and the next unit's piece, which arrive while it
/// computes).
///
/// A stage in the type is known at compile time: an optimizer that needs whole matrices does not compile, and stage 0 is not
/// compiled.
namespace zero {
/// Optimizer state.
struct Stage1 {
  static void apply(ModelOptions& options) { options.shard.stage = 1; }
};
/// Optimizer state and gradients.
struct Stage2 {
  static void apply(ModelOptions& options) { options.shard.stage = 2; }
};
/// Optimizer state, gradients and parameters.
struct Stage3 {
  static void apply(ModelOptions& options) { options.shard.stage = 3; }
};
}  // namespace zero

/// ModelOptions::context of ContextParallel: keys and values go round a ring.
struct Ring {
  static void apply(ModelOptions& options) { options.context = ContextMethod::ring; }
};
/// ModelOptions::context of ContextParallel: ranks exchange tokens for heads.
struct Ulysses {
  static void apply(ModelOptions& options) { options.context = ContextMethod::ulysses; }
};

/// ModelOptions::numerics.reproducible: the run has the same bits for every dp degree that divides the micro-batches, every stage
/// of ZeRO, every schedule and every pp degree.
struct Reproducible {
  template <class Options>  // else every program would compile the code of this option
  static void apply(Options& options) {
    options.numerics.reproducible = true;
  }
};

/// Layers compute in Param, the model's own scalar (models::BasicGpt<bfloat16>), and add gradients in accumulate_t<Param>; data
/// ranks send and add gradients in Reduce, bfloat16 or float. If Param has 16 bits, the optimizer updates a master copy in float;
/// stage 3 of FullyShardedDataParallel keeps only that copy and gathers it as Param. Gradient is ModelOptions::numerics.gradient,
/// the type in which sums of gradients are kept, Param or accumulate_t<Param>; void leaves it to the stage.
template <class Param, class Reduce, class Gradient = void>
struct MixedPrecision {
  static_assert(
      detail::Real<Param>,
      "weft: MixedPrecision's Param must be float, bfloat16, float16 or double: the type that the model's layers compute in");
  static_assert(std::is_same_v<Reduce, bfloat16> || std::is_same_v<Reduce, accumulate_t<Param>>,
                "weft: MixedPrecision's Reduce must be bfloat16, or the type in which gradients are kept: float for Param "
                "bfloat16, float16 and float, double for double");
  static_assert(std::is_void_v<Gradient> || std::is_same_v<Gradient, Param> || std::is_same_v<Gradient, accumulate_t<Param>>,
                "weft: MixedPrecision's Gradient must be Param, or the type in which layers add gradients: float for Param "
                "bfloat16, float16 and float, double for double");
  static void apply(ModelOptions& options) {
    if constexpr (std::is_same_v<Reduce, bfloat16>) options.numerics.reduce = DataType::bfloat16;
    if constexpr (!std::is_void_v<Gradient>) options.numerics.gradient = data_type_of<Gradient>;
  }
};

/// ModelOptions::shard.quantised_gather: ZeRO++ qwZ.
struct QuantisedGather {
  static void apply(ModelOptions& options) { options.shard.quantised_gather = true; }
};

/// ModelOptions::shard.secondary: ZeRO++ hpZ, with nodes of `ranks` ranks.
template <std::size_t ranks>
struct SecondaryShards {
  static void apply(ModelOptions& options) { options.shard.secondary = ranks; }
};

/// ModelOptions::shard.quantised_reduce: ZeRO++ qgZ, with nodes of `ranks` ranks.
template <std::size_t ranks>
struct QuantisedReduce {
  static void apply(ModelOptions& options) { options.shard.quantised_reduce = ranks; }
};

/// ModelOptions::shard.replicate: hybrid sharding.
template <std::size_t copies>
struct HybridSharding {
  static void apply(ModelOptions& options) { options.shard.replicate = copies; }
};

namespace detail {

template <class P>
inline constexpr bool is_zero_stage =
    std::is_same_v<P, zero::Stage1> || std::is_same_v<P, zero::Stage2> || std::is_same_v<P, zero::Stage3>;
template <class P>
inline constexpr bool is_context_method = std::is_same_v<P, Ring> || std::is_same_v<P, Ulysses>;

// True if apply takes a copy or a const reference: the options that it sets would be lost.
template <class P>
concept AppliesToACopy = requires {
  static_cast<void (*)(ModelOptions)>(&P::apply);
}
|| (
       requires { static_cast<void (*)(const ModelOptions&)>(&P::apply); } &&
       !requires { static_cast<void (*)(ModelOptions&)>(&P::apply); });
template <class P>
inline constexpr bool is_policy = !is_zero_stage<P> && !is_context_method<P> && requires(ModelOptions & options) {
  P::apply(options);
}
&&!AppliesToACopy<P>;
template <class P>
inline constexpr bool is_data_policy = is_policy<P> || hook::detail::fault_of_hook<P>() == hook::detail::HookFault::none;

WEFT_HAS_MEMBER(apply)

// True for a type that is neither policy nor hook, but resembles one: the class below reports the fault. For any other type the
// wrapper reports which types may stand there.
template <class P>
inline constexpr bool resembles_policy = !is_data_policy<P> && !is_zero_stage<P> && !is_context_method<P> && has_apply<P>();
template <class P>
inline constexpr bool resembles_hook =
    !is_data_policy<P> && !has_apply<P>() && (hook::detail::has_start<P>() || hook::detail::has_finish<P>());

template <class P>
struct CheckedDataPolicy {
  static constexpr bool said = true;
};
template <class P>
requires resembles_hook<P>
struct CheckedDataPolicy<P> : hook::detail::RefusedHook<P> {
};
template <class P>
requires resembles_policy<P>
struct CheckedDataPolicy<P> {
  static constexpr bool said = true, copy = AppliesToACopy<P>;
  static_assert(!copy,
                "weft: this policy's apply takes ModelOptions by value or const reference, so the options that it sets would be "
                "lost: write "
                "`static void apply(ModelOptions& options)`; see P in this class's template arguments");
  static_assert(copy,
                "weft: this policy's apply cannot be called with ModelOptions: write `static void apply(ModelOptions& options)`, "
                "static and public; see P in this class's template arguments");
};

// A schedule's type as a policy of PipelineParallel.
template <class S>
struct RunsSchedule {
  static void apply(ModelOptions& options) { options.pipeline.schedule = schedule::Value<S>(); }
};

// True for no type, since ModelOptions selects it then, or for one.
template <class... S>
inline constexpr bool schedule_types = sizeof...(S) == 0 || (sizeof...(S) == 1 && (schedule::Erasable<S> && ...));
template <class... Method>
inline constexpr bool context_methods = sizeof...(Method) == 0 || (sizeof...(Method) == 1 && (is_context_method<Method> && ...));

// True if the model computes in the type that a policy names.
template <class Scalar, class P>
inline constexpr bool policy_fits = true;
template <class Scalar, class Param, class Reduce, class Gradient>
inline constexpr bool policy_fits<Scalar, MixedPrecision<Param, Reduce, Gradient>> = std::is_same_v<Scalar, Param>;

template <class P>
void apply_policy(ModelOptions& options) {
  if constexpr (requires { P::apply(options); }) P::apply(options);
  else options.data.hook = hook::make<P>();
}

// A wrapper's policy, with `Policies` applied before anything is constructed.
template <class Base, class... Policies>
struct AppliedPolicies : Base {
  using Base::Base;
  static void adjust(ModelOptions& options) { (apply_policy<Policies>(options), ...); }
};
template <class Base, class... Policies>
using WithPolicies = std::conditional_t<sizeof...(Policies) == 0, Base, AppliedPolicies<Base, Policies...>>;

}  // namespace detail
}  // namespace weft
