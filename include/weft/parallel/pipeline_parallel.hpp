// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pipeline parallelism: the model's stack is cut into stages, and micro-batches flow through the stages in the order of a proven
// schedule.
//
//   PipelineParallel<models::Gpt> model(mesh, config, {.pipeline = {.schedule = schedule::zbv}});

#include <weft/parallel/policies.hpp>
#include <weft/parallel/wrapper.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>

namespace weft {

namespace detail {
struct PipelinePolicy : PlainPolicy {
  using axis = pp;
  using hidden_placement = Invariant<pp>;
  PipelinePolicy(const Communicator&, DefaultDevice&, const ModelOptions&) {}
  static schedule::AnySchedule schedule(const ModelOptions& options) {
    return options.pipeline.schedule ? *options.pipeline.schedule : PlainPolicy::schedule(options);
  }
};
}  // namespace detail

/// M in stages over pp, run by ModelOptions::pipeline.schedule. The type may name the schedule instead: one of
/// pipeline/schedule/, or schedule::Custom, a user's table that the compiler proves. Stages are cut between blocks. Numerics:
/// weight gradients are added in micro-batch order, so they are bitwise those of accumulation on one rank.
template <class M, class... S>
class PipelineParallel;

template <class M, class... S>
inline constexpr int nesting_level<PipelineParallel<M, S...>> = 30;

namespace detail {
template <class M, class... S>
inline constexpr bool sound<PipelineParallel<M, S...>> = !is_wrapper<M> && schedule_types<S...> && sound<M> && !ModuleModel<M>;
template <class M, class... S>
using PipelineBase = std::conditional_t<sound<PipelineParallel<M, S...>>,
                                        Wrapper<WithPolicies<PipelinePolicy, RunsSchedule<S>...>, M>, Refused<M>>;
}  // namespace detail

template <class M, class... S>
class PipelineParallel : public detail::PipelineBase<M, S...> {
  static_assert(!is_wrapper<M>,
                "weft: PipelineParallel cuts a model into stages, so it stands next to the model: write "
                "DataParallel<TensorParallel<PipelineParallel<Model>>>");
  static_assert(!detail::ModuleModel<M>,
                "weft: PipelineParallel cuts a model between its units, and a Module is one unit, whose forward is one function: "
                "write the model as a stack, `static auto stack(const auto& context, const Config& config)`, which returns "
                "Stack(...) of functions that make its parts, or leave the wrapper out");
  static_assert(detail::schedule_types<S...>,
                "weft: PipelineParallel's second template parameter must be a schedule, such as schedule::Zbv or "
                "schedule::Custom<table>, or be left out: ModelOptions::pipeline.schedule then chooses when the program runs");

 public:
  using detail::PipelineBase<M, S...>::PipelineBase;
};

}  // namespace weft
