// SPDX-License-Identifier: Apache-2.0
#pragma once
// Context parallelism: every rank has a part of each sequence, so that long sequences fit. Layers work on the rows that they
// have; attention fetches keys and values from the other ranks of cp (a ring), or exchanges tokens for heads (Ulysses). Positions
// and dropout are those of the whole sequence.
//
//   Mesh<dp, cp, tp, pp> mesh(world, {.tp = 2, .cp = 4, .pp = 2});
//   DataParallel<ContextParallel<TensorParallel<PipelineParallel<models::Llama>>>> model(
//       mesh, config, {.context = ContextMethod::ulysses});
//
// All ranks of cp are given the same batch, one dp rank's share with whole sequences; each takes its chunks (Zigzag).

#include <span>
#include <vector>

#include <weft/autograd/row_terms.hpp>
#include <weft/parallel/policies.hpp>
#include <weft/parallel/wrapper.hpp>
#include <weft/pipeline/unreduced_gradients.hpp>

namespace weft {

namespace detail {

/// Sums gradients over cp: every rank of cp holds every parameter, and its gradient there is that of the rank's tokens, a term of
/// a sum.
template <class Exec>
class ContextGradientReducer : public Hooks {
 public:
  ContextGradientReducer(Communicator comm, Device<Exec>& device) : comm_(std::move(comm)), device_(&device) {}

  void gradients_ready(Unit& unit) override {
    agree_on_unreduced(comm_, *device_, unit, axis_bit<cp>);
    std::vector<Request> sums;  // all under way at once
    for (ParameterState* state : unit.parameters) {
      if (!state->take_unreduced(cp{})) continue;
      if (device_->chunk_terms() != 0) add_row_terms(cp{}, comm_, *device_, *state);
      else if (comm_.size() > 1) state->gradient_span([&](auto gradient) { sums.push_back(comm_.all_reduce_async(gradient)); });
    }
    for (Request& sum : sums) sum.wait();
  }

 private:
  Communicator comm_;
  Device<Exec>* device_;
};

// Gives the device its number of terms (NumericsOptions::reproducible_degree).
template <class Exec>
WEFT_COLD void fix_terms_of_chunks(Device<Exec>& device, const ModelOptions& options, std::size_t ranks) {
  const std::size_t degree = options.numerics.reproducible_degree;
  if (options.context == ContextMethod::ring && ranks > 1)
    throw_error<LayoutError>({"numerics.reproducible_degree: a ring over cp(", ranks,
                              ") adds the blocks of keys in an order that depends on cp: use ContextMethod::ulysses, or cp 1"});
  if (options.loss.chunks > 1)
    throw_error<UsageError>({"numerics.reproducible_degree: the gradient of the vocabulary's table is a sum over loss.chunks(",
                             options.loss.chunks,
                             ") parts of the tokens, which would depend on cp; use 1 under ContextParallel"});
  device.fix_chunk_terms(terms_of_rank(cp::name, degree, ranks, device.chunk_terms()));
}

struct ContextPolicy : PlainPolicy {
  using axis = cp;
  using hidden_placement = Shard<cp, 0>;
  ContextPolicy(const Communicator& comm, DefaultDevice& device, const ModelOptions& options) : reducer(comm, device) {
    if (options.numerics.reproducible_degree != 0) fix_terms_of_chunks(device, options, std::size_t(comm.size()));
  }
  Hooks* hooks() { return &reducer; }
  ContextGradientReducer<DefaultDevice::execution_space> reducer;
};

}  // namespace detail

/// M with each sequence cut over cp. ModelOptions::context selects how attention spans the ranks: a ring (any number of heads;
/// keys and values travel while blocks are computed) or Ulysses (two all-to-alls each way; the heads of a tp rank must be
/// divisible by cp, and its key-value heads must divide cp or be divisible by it). The policies Ring and Ulysses select it in the
/// type. The sequence must be divisible by 2 · cp, else LayoutError when the model is made, or ShapeError for a batch of another
/// length. Numerics: equal to one rank up to the rounding of sums over blocks of keys and of cp terms; dropout masks bitwise.
template <class M, class... Method>
class ContextParallel;

template <class M, class... Method>
inline constexpr int nesting_level<ContextParallel<M, Method...>> = 15;

namespace detail {
template <class M, class... Method>
inline constexpr bool sound<ContextParallel<M, Method...>> = (nesting_level<M> > 15) && context_methods<Method...>&& sound<M>;
template <class M, class... Method>
using ContextBase =
    std::conditional_t<sound<ContextParallel<M, Method...>>, Wrapper<WithPolicies<ContextPolicy, Method...>, M>, Refused<M>>;
}  // namespace detail

template <class M, class... Method>
class ContextParallel : public detail::ContextBase<M, Method...> {
  static_assert(nesting_level<M> > 15,
                "weft: wrappers nest as DataParallel of ContextParallel of TensorParallel of PipelineParallel of a model, each "
                "at most once: the wrapper inside ContextParallel belongs outside it");
  static_assert(detail::context_methods<Method...>,
                "weft: ContextParallel's second template parameter must be Ring or Ulysses, or be left out: "
                "ModelOptions::context then chooses when the program runs");

 public:
  using detail::ContextBase<M, Method...>::ContextBase;
};

}  // namespace weft

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class ContextGradientReducer<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft::detail
#endif
