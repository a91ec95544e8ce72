// SPDX-License-Identifier: Apache-2.0
#pragma once
// Data parallelism that does not keep everything everywhere (Rajbhandari et al., ZeRO, arXiv:1910.02054; PyTorch's FSDP2): each
// data rank keeps and updates its part of the optimizer's state, of the gradients, of the parameters.
//
//   FullyShardedDataParallel<TensorParallel<PipelineParallel<models::Gpt>>, zero::Stage3> model(mesh, config);
//
// It stands where DataParallel would.

#include <weft/parallel/policies.hpp>
#include <weft/parallel/fsdp/fully_sharded_hooks.hpp>
#include <weft/parallel/wrapper.hpp>

namespace weft {

/// What the data ranks share out. Bytes a rank, P parameters over N data ranks, with AdamW:
///
///               float               bfloat16, float16        double
///   Stage1      8 P + 8 P / N       4 P + 12 P / N           16 P + 16 P / N
///   Stage2      4 P + 12 P / N      2 P + 14 P / N            8 P + 24 P / N
///   Stage3      16 P / N            16 P / N                 32 P / N
///
/// (parameter + gradient + optimizer). Of 16-bit models stages 1 and 2 keep sums of gradients in 16 bits, each micro-batch added in
/// float and rounded once, or in float (ModelOptions::gradient: 6 P + 12 P / N and 2 P + 16 P / N); stage 3 keeps the master copy
/// alone, which is rounded when a unit is gathered, and gradients in float. Beside it is what is on its way: up to two gathered units
/// in stage 3, up to two units of whole gradients, a sum of a unit's shards. With
/// ModelOptions::replicate N is dp / replicate; secondary adds P / secondary values; offload takes the optimizer's bytes, and in
/// stage 3 the parameters', off the device, where the largest parameter's of them come and go (on a GPU the next one's and the next unit's
/// piece, too: they come while it computes).
namespace zero {
/// Optimizer state.
struct Stage1 {
  static constexpr detail::ShardRules rules{.keeps_values = true, .keeps_gradients = true};
};
/// Optimizer state and gradients.
struct Stage2 {
  static constexpr detail::ShardRules rules{.keeps_values = true, .keeps_gradients = false};
};
/// Optimizer state, gradients and parameters.
struct Stage3 {
  static constexpr detail::ShardRules rules{.keeps_values = false, .keeps_gradients = false};
};
/// ModelOptions::zero says which, 1, 2 or 3, or 0: nothing is shared out and gradients are summed as in DataParallel. For programs
/// with a command line: one compiled model for all of them; include parallel/fsdp/dynamic_stage.hpp.
struct Dynamic;
}  // namespace zero

namespace detail {

template <class Stage>
inline constexpr bool is_zero_stage = std::is_same_v<Stage, zero::Stage1> || std::is_same_v<Stage, zero::Stage2> || std::is_same_v<Stage, zero::Stage3>;
template <>
inline constexpr bool is_zero_stage<zero::Dynamic> = true;

template <class Stage>
struct ShardedDataPolicy : PlainPolicy {
  using axis = dp;
  using hidden_placement = Invariant<dp>;
  static constexpr bool shards_parameters = true;
  ShardedDataPolicy(const Communicator& comm, DefaultDevice& device, const ModelOptions& options) : shards(comm, device, options, Stage::rules) {}
  Hooks* hooks() { return &shards; }
  FullyShardedHooks<DefaultDevice::execution_space> shards;
};

}  // namespace detail

/// M on every dp rank, each with its own sequences and its part of the state. A unit (front, each block, back) is gathered
/// before its forward and before its backward while the one before it computes, and its gradients are scattered as soon as they
/// are complete, for every micro-batch (or once: ModelOptions::reduce_each_micro_batch). Stages 1 and 2 gather once a step.
/// The weight half of a layer's backward must not use parameter values: they may have been released.
///
/// Numerics: gradients are sums over dp in rank order, in float for bfloat16 parameters; where they are kept so, equal to
/// DataParallel bit by bit with one micro-batch, else up to the rounding of sums in another order; where they are kept in 16 bits,
/// further by half a bit of these for each micro-batch. Shards ignore the parameters' shapes, so an optimizer
/// must work element by element; another one is refused. A tied embedding on two pipeline stages keeps its whole gradient until the end of the step.
/// Policies: Reproducible and others of parallel/policies.hpp.
template <class M, class ZeroStage1Or2Or3 = zero::Stage3, class... Policies>  // so named since compilers print it where a number stands
class FullyShardedDataParallel;

template <class M, class Stage, class... Policies>
inline constexpr int nesting_level<FullyShardedDataParallel<M, Stage, Policies...>> = 10;

namespace detail {
template <class M, class Stage, class... Policies>
inline constexpr bool sound<FullyShardedDataParallel<M, Stage, Policies...>> = (nesting_level<M> > 10) && is_zero_stage<Stage> && (is_policy<Policies> && ...) && sound<M>;
template <class M, class Stage, class... Policies>
using ShardedDataBase = std::conditional_t<sound<FullyShardedDataParallel<M, Stage, Policies...>>, Wrapper<WithPolicies<ShardedDataPolicy<Stage>, Policies...>, M>, Refused<M>>;
}

template <class M, class Stage /* zero::Stage1, zero::Stage2 or zero::Stage3 */, class... Policies>
class FullyShardedDataParallel : public detail::ShardedDataBase<M, Stage, Policies...> {
  static_assert(nesting_level<M> > 10, "weft: wrappers nest as FullyShardedDataParallel of TensorParallel of PipelineParallel of a model, each at most once: FullyShardedDataParallel stands outermost, once, and in place of DataParallel");
  static_assert(detail::is_zero_stage<Stage>, "weft: FullyShardedDataParallel's second template parameter must be zero::Stage1, zero::Stage2 or zero::Stage3");
  static_assert((detail::CheckedDataPolicy<Policies>::said && ...));
  static_assert(((detail::is_policy<Policies> || detail::resembles_policy<Policies> || detail::resembles_hook<Policies>) && ...), "weft: FullyShardedDataParallel's template parameters after the stage must be policies, such as Reproducible");

  static_assert((detail::policy_fits<typename detail::ScalarOf<M>::type, Policies> && ...), "weft: MixedPrecision's Param must be the type that the model computes in, such as bfloat16 for models::BasicGpt<bfloat16>");

 public:
  using typename detail::ShardedDataBase<M, Stage, Policies...>::Config;
  /// The model laid over `mesh`: see Wrapper.
  template <detail::Axis... X>
  FullyShardedDataParallel(const Mesh<X...>& mesh, const Config& config, const ModelOptions& options = {})  // what cannot be converted to Config names a field that it lacks, or fields out of its order
      : detail::ShardedDataBase<M, Stage, Policies...>(mesh, config, options) {}
};

}  // namespace weft
