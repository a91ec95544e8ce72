// SPDX-License-Identifier: Apache-2.0
#pragma once
// Fully sharded data parallelism (Rajbhandari et al., ZeRO, arXiv:1910.02054; PyTorch's FSDP2): each data rank keeps and updates
// only its part of the optimizer's state, of the gradients and of the parameters, so that larger models fit. It takes the place
// of DataParallel.
//
//   FullyShardedDataParallel<TensorParallel<PipelineParallel<models::Gpt>>> model(mesh, config, {.shard = {.stage = 3}});

#include <memory>

#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/fsdp/fully_sharded_hooks.hpp>
#include <weft/parallel/policies.hpp>
#include <weft/parallel/wrapper.hpp>

namespace weft {

namespace detail {

/// L and the domain axes among X.
template <class L, class... X>
struct WithDomainAxes {
  using type = L;
};
template <class... A, class B, class... X>
struct WithDomainAxes<Axes<A...>, B, X...>
    : WithDomainAxes<std::conditional_t<is_domain_axis<B>, Axes<A..., B>, Axes<A...>>, X...> {};

// in_type: a policy sets the stage, so it is not 0.
template <bool in_type>
struct ShardedDataPolicy : PlainPolicy {
  using axis = dp;
  using hidden_placement = Invariant<dp>;
  static constexpr bool shards_parameters = in_type, shards_by_stage = true;
  using Exec = DefaultDevice::execution_space;

  ShardedDataPolicy(const Communicator& comm, DefaultDevice& device, const ModelOptions& options) {
    const int stage = options.shard.stage;
    if (stage < int(in_type) || stage > 3)
      throw_error<UsageError>({"ModelOptions::shard.stage is ", stage, ": the stages are 0, 1, 2 and 3"});
    if constexpr (!in_type)
      if (stage == 0) {
        hooks_ = std::make_unique<Buckets<Exec>>(comm, device, options);
        return;
      }
    hooks_ = std::make_unique<FullyShardedHooks<Exec>>(comm, device, options, ShardRules::of_stage(stage));
  }
  /// The ranks that share the state. Collective.
  template <Axis... X>
  requires(std::is_same_v<X, dp> || ...) static Communicator ranks_of(const Mesh<X...>& mesh, const ModelOptions& options) {
    if (!options.shard.over_domain) return mesh.comm(dp{});
    return [&]<Axis... A>(Axes<A...>) { return mesh.comm(A{}...); }
    (typename WithDomainAxes<Axes<dp>, X...>::type());
  }
  Hooks* hooks() { return hooks_.get(); }

 private:
  std::unique_ptr<Hooks> hooks_;
};

template <class... Policies>
inline constexpr int stages_in_type = (int(is_zero_stage<Policies>) + ... + 0);

}  // namespace detail

/// M on every dp rank, each with its own sequences and its part of the state. A unit (front, each block, back) is gathered before
/// its forward and before its backward, while the unit before it computes. Its gradients are reduce-scattered as soon as they are
/// complete, for every micro-batch (or once per step: ModelOptions::shard.reduce_each_micro_batch). Stages 1 and 2 gather once
/// per step. The weight half of a layer's backward must not use parameter values: they may have been released.
///
/// Numerics: gradients are sums over dp in rank order, in float for parameters in 16 bits. If they are kept in float, they equal
/// those of DataParallel bit by bit with one micro-batch, else up to the rounding of sums in another order; if they are kept in
/// 16 bits, each micro-batch adds a rounding error of half a unit in their last place. Shards ignore the parameters' shapes, so
/// an optimizer must work element by element; any other is refused. A tied embedding on two pipeline stages keeps its whole
/// gradient until the end of the step. ModelOptions::shard.stage is the stage, 3 unless set. Policies, in the type: a stage,
/// Reproducible and others of parallel/policies.hpp.
template <class M, class... ZeroStage1Or2Or3AndPolicies>  // named so because compilers print it if a number is here
class FullyShardedDataParallel;

template <class M, class... Policies>
inline constexpr int nesting_level<FullyShardedDataParallel<M, Policies...>> = 10;

namespace detail {
template <class M, class... Policies>
inline constexpr bool sound<FullyShardedDataParallel<M, Policies...>> =
    (nesting_level<M> > 10) && stages_in_type<Policies...> <= 1 &&
    ((is_zero_stage<Policies> || is_policy<Policies>)&&...) && sound<M>;
template <class M, class... Policies>
using ShardedDataBase =
    std::conditional_t<sound<FullyShardedDataParallel<M, Policies...>>,
                       Wrapper<WithPolicies<ShardedDataPolicy<stages_in_type<Policies...> != 0>, Policies...>, M>, Refused<M>>;
}  // namespace detail

template <class M, class... Policies /* zero::Stage1, zero::Stage2 or zero::Stage3, and policies */>
class FullyShardedDataParallel : public detail::ShardedDataBase<M, Policies...> {
  static_assert(nesting_level<M> > 10,
                "weft: wrappers nest as FullyShardedDataParallel of TensorParallel of PipelineParallel of a model, each at most "
                "once: FullyShardedDataParallel stands outermost, once, and in place of DataParallel");
  static_assert((detail::CheckedDataPolicy<Policies>::said && ...));
  static_assert(
      ((detail::is_zero_stage<Policies> || detail::is_policy<Policies> || detail::resembles_policy<Policies> ||
        detail::resembles_hook<Policies>)&&...),
      "weft: FullyShardedDataParallel's template parameters after the model must be zero::Stage1, zero::Stage2 or zero::Stage3, "
      "or policies, such as Reproducible; a stage that is known when the program runs is ModelOptions::shard.stage");
  static_assert(detail::stages_in_type<Policies...> <= 1,
                "weft: FullyShardedDataParallel has one stage of ZeRO: leave all but one of zero::Stage1, zero::Stage2 and "
                "zero::Stage3 out");

  static_assert((detail::policy_fits<typename detail::ScalarOf<M>::type, Policies> && ...),
                "weft: MixedPrecision's Param must be the type that the model computes in, such as bfloat16 for "
                "models::BasicGpt<bfloat16>");

 public:
  using typename detail::ShardedDataBase<M, Policies...>::Config;
  /// The model laid over `mesh`: see Wrapper.
  template <detail::Axis... X>
  FullyShardedDataParallel(
      const Mesh<X...>& mesh,  // an argument that is no Config names a field that it lacks, or in another order
      const Config& config = detail::no_config<detail::model_of_t<M>>(), const ModelOptions& options = {})
      : detail::ShardedDataBase<M, Policies...>(mesh, config, options) {}
};

}  // namespace weft
