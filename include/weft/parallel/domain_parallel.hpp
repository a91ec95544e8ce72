// SPDX-License-Identifier: Apache-2.0
#pragma once
// Domain parallelism: fields of space are cut over the axes dx, dy and dz, so that samples fit that one rank cannot hold. Layers
// work on the piece that they have, with halos where a window reaches over its edge (operations/window.hpp). Every rank has every
// parameter, whose gradient there is that of the rank's piece, a term of a sum.
//
//   inline constexpr data::Field<"pressure", float, data::Cut<dx, 2>, data::Cut<dy, 3>> pressure;   // [samples, channels, x, y]
//   Mesh<dp, dx, dy> mesh(world, {.dx = 2, .dy = 2});
//   DataParallel<DomainParallel<Model, dx, dy>> model(mesh, config);
//
// A batch has the rank's piece of such fields: pieces of one axis follow each other by mesh.rank(dx{}), and may have different
// extents. Ranks of the domain axes are next to each other, the last axis fastest, as those of MPI_Cart_create.

#include <type_traits>
#include <vector>

#include <weft/parallel/user_wrapper.hpp>

namespace weft {

namespace detail {

/// Sums gradients over a domain axis.
template <class A>
struct DomainPolicy : UserPolicy<A, Nesting::tensor> {
  void gradients_ready(Unit& unit) override {
    std::vector<Request> sums;  // all under way at once
    for (ParameterState* state : unit.parameters) {
      const bool term = state->take_unreduced(A());
      if (this->comm().size() == 1) continue;
      if (state->sharded() & axis_bit<A>) {  // the sum over data ranks follows, and runs over this axis as well
        if (!term && this->comm().rank() != 0) zero_gradient(this->device(), *state);  // a whole gradient counts once
        continue;
      }
      if (!term) continue;
      state->gradient_span([&](auto gradient) { sums.push_back(this->comm().all_reduce_async(gradient)); });
    }
    for (Request& sum : sums) sum.wait();
  }
};

template <class... A>
struct RefusedDomainAxes final : RefusedUserPolicy {
  static constexpr bool refuse() {
    static_assert(sizeof...(A) > 99, "weft: DomainParallel names its axes, which are dx, dy and dz: DomainParallel<M, dx, dy>");
    return true;
  }
};
template <class A>
using domain_policy_t = std::conditional_t<is_domain_axis<A>, DomainPolicy<A>, RefusedDomainAxes<A>>;
template <class M, class... A>
struct DomainWrappers {
  using type = UserWrapper<RefusedDomainAxes<A...>, M>;
};
template <class M, class A>
struct DomainWrappers<M, A> {
  using type = UserWrapper<domain_policy_t<A>, M>;
};
template <class M, class A, class B, class... R>
struct DomainWrappers<M, A, B, R...> {
  using type = UserWrapper<domain_policy_t<A>, typename DomainWrappers<M, B, R...>::type>;
};

}  // namespace detail

/// M with fields cut over these domain axes, inside TensorParallel and around PipelineParallel. Inputs are placed as their
/// fields' data::Cut options state, Invariant without one. Gradients of parameters are summed over the axes at the end of a step.
/// FullyShardedDataParallel shares their state over the axes, too, if ModelOptions::shard.over_domain is set.
/// Numerics: equal to one rank up to the rounding of sums; with ModelOptions::numerics.reproducible the constructor throws
/// UsageError on more than one rank of an axis.
template <class M, class... A>
using DomainParallel = typename detail::DomainWrappers<M, A...>::type;

}  // namespace weft
