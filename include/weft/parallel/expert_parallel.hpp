// SPDX-License-Identifier: Apache-2.0
#pragma once
// Expert parallelism (GShard, arXiv:2006.16668) with parallel folding (arXiv:2504.14960): the ranks of a pipeline stage form a
// dense mesh, dp x cp x tp, and a mesh of experts, edp x ep x etp. Tokens are cut over all ranks and sent to the ranks that hold
// their experts.
//
//   Mesh<dp, tp, ep, etp, edp> mesh(world, {.tp = 2, .ep = 4});
//   DataParallel<TensorParallel<ExpertParallel<models::Mixtral>>> model(mesh, config);

#include <span>
#include <type_traits>

#include <weft/parallel/wrapper.hpp>

namespace weft {

namespace detail {

// Sums the experts' gradients over edp if no data wrapper outside does so.
class ExpertGradientReducer : public Hooks {
 public:
  explicit ExpertGradientReducer(bool sums) : sums_(sums) {}
  void gradients_ready(Unit& unit) override {
    for (ParameterState* state : unit.parameters) {
      if (!sums_ || !state->info().expert_data) continue;
      state->take_unreduced(edp{});
      const Communicator& ranks = *state->info().expert_data;
      if (ranks.size() > 1) state->gradient_span([&](auto gradient) { ranks.all_reduce(gradient); });
    }
  }

 private:
  bool sums_;
};

struct ExpertPolicy : PlainPolicy {
  using axis = ep;
  using axes = Axes<ep, etp, edp>;

  template <class Context, Axis... X>
  ExpertPolicy(const Context&, const Mesh<X...>& mesh, const ModelOptions&)
      : etp_ranks(comm_of(mesh, etp{})), edp_ranks(comm_of(mesh, edp{})), reducer(!Context::has(dp{})) {
    static_assert(((std::is_same_v<X, dp> || std::is_same_v<X, cp> || std::is_same_v<X, tp>) || ...),
                  "weft: ExpertParallel over a Mesh without dp, cp or tp: all ranks would have the same tokens; name one of them "
                  "in axes<...>, and wrap the model in its wrapper");
  }
  template <class Context>
  auto bind(const Context& context, const Communicator& ep_ranks) {
    return context.template with<ExpertMeshAxis>(ep{}, ep_ranks, &reducer)
        .template with<ExpertMeshAxis>(etp{}, etp_ranks)
        .template with<ExpertMeshAxis>(edp{}, edp_ranks);
  }

  Communicator etp_ranks, edp_ranks;
  ExpertGradientReducer reducer;

 private:
  template <class A, Axis... X>
  static Communicator comm_of(const Mesh<X...>& mesh, A axis) {
    if constexpr ((std::is_same_v<X, A> || ...)) return mesh.comm(axis);
    else return Communicator();
  }
};

template <class M>
concept HasExperts = requires(const typename M::Config& config) {
  M::experts(config);
};

}  // namespace detail

/// M with its experts over ep, each cut over etp, with edp copies; etp and edp may be left out of the mesh if they are 1. Dense
/// layers are not affected. Gradients of experts are sums over edp (by the data wrapper if there is one), never over ep. Throws
/// LayoutError if ep does not divide the experts, or etp their inner width. Numerics: equal to one rank up to the rounding of
/// sums of tokens in another order, and of etp terms.
template <class M>
class ExpertParallel;

template <class M>
inline constexpr int nesting_level<ExpertParallel<M>> = 25;

namespace detail {
template <class M>
inline constexpr bool expert_nesting = nesting_level<M> > 25;
template <class M>
inline constexpr bool sound<ExpertParallel<M>> = expert_nesting<M>&& HasExperts<model_of_t<M>>&& sound<M>;
template <class M>
using ExpertBase = std::conditional_t<sound<ExpertParallel<M>>, Wrapper<ExpertPolicy, M>, Refused<M>>;
}  // namespace detail

template <class M>
class ExpertParallel : public detail::ExpertBase<M> {
  static_assert(detail::expert_nesting<M>,
                "weft: wrappers nest as DataParallel of TensorParallel of ExpertParallel of PipelineParallel of a model, each at "
                "most once: the wrapper inside ExpertParallel belongs outside it");
  static_assert(!detail::expert_nesting<M> || !detail::sound<M> || detail::HasExperts<detail::model_of_t<M>>,
                "weft: ExpertParallel needs a model with experts, such as models::Mixtral");

 public:
  using detail::ExpertBase<M>::ExpertBase;
};

}  // namespace weft
