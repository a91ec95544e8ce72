// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensor parallelism (Megatron-LM, arXiv:1909.08053): column- and row-parallel weights, vocabulary-parallel embedding and loss.
// The layers define how they are cut. The wrapper binds the axis and sums the gradients that are unreduced according to their
// types: those that are Partial<tp>, and those of key-value heads that several ranks hold.
//
//   DataParallel<TensorParallel<models::Gpt>> model(mesh, config);

#include <vector>

#include <weft/autograd/row_terms.hpp>
#include <weft/parallel/wrapper.hpp>
#include <weft/pipeline/unreduced_gradients.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {

template <class Exec>
class TensorGradientReducer : public Hooks {
 public:
  TensorGradientReducer(Communicator comm, Device<Exec>& device) : comm_(std::move(comm)), device_(&device) {}

  bool allocate(ParameterState& state) override;
  void gradients_ready(Unit& unit) override;

 private:
  struct Replicas {
    int count;
    Communicator comm;
  };
  const Communicator* find_replicas(int count) const;
  static constexpr comm::MemoryKind memory = weft::detail::memory_kind<Tensor<float, Exec>>();

  void reduce(ParameterState& state);
  void copy_shared(const ParameterState& state, char* gradient, char* packed, bool pack);

  Communicator comm_;
  Device<Exec>* device_;
  std::vector<Replicas> replicas_;
};

template <class Exec>
bool TensorGradientReducer<Exec>::allocate(ParameterState& state) {
  // All ranks make the same parameters in the same order, so this is collective.
  if (state.info().replicas > 1 && find_replicas(state.info().replicas) == nullptr)
    replicas_.push_back({state.info().replicas, comm_.split(comm_.rank() / state.info().replicas, comm_.rank(), "tp",
                                                            {comm_.rank() % state.info().replicas, state.info().replicas})});
  return false;
}

template <class Exec>
void TensorGradientReducer<Exec>::gradients_ready(Unit& unit) {
  agree_on_unreduced(comm_, *device_, unit, axis_bit<tp>);
  for (ParameterState* state : unit.parameters) {
    if (!state->take_unreduced(tp{})) continue;
    if (device_->sum_terms() != 0) add_row_terms(tp{}, comm_, *device_, *state);
    else if (comm_.size() > 1) reduce(*state);
  }
}

template <class Exec>
const Communicator* TensorGradientReducer<Exec>::find_replicas(int count) const {
  for (const Replicas& replicas : replicas_)
    if (replicas.count == count) return &replicas.comm;
  return nullptr;
}

template <class Exec>
void TensorGradientReducer<Exec>::reduce(ParameterState& state) {
  char* gradient = static_cast<char*>(state.gradients().layer_buffer().get());
  const DataType type = state.gradient_type();
  if (state.info().replicas == 1) return comm_.all_reduce(comm::elements_of<float, double>(type, memory, gradient, state.size()));
  // Only the runs that several ranks hold: packed, summed, put back.
  std::size_t size = 0;
  for (const Run& run : state.info().runs) size += run.shared ? run.length : 0;
  const Buffer buffer = device_->allocate(size * size_of(type));
  char* packed = static_cast<char*>(buffer.get());
  copy_shared(state, gradient, packed, true);
  find_replicas(state.info().replicas)->all_reduce(comm::elements_of<float, double>(type, memory, packed, size));
  copy_shared(state, gradient, packed, false);
}

template <class Exec>
void TensorGradientReducer<Exec>::copy_shared(const ParameterState& state, char* gradient, char* packed, bool pack) {
  for (const Run& run : state.info().runs) {
    if (!run.shared) continue;
    const std::size_t bytes = run.length * size_of(state.gradient_type());  // whole floats: gradients are never narrower
    float *here = reinterpret_cast<float*>(gradient + run.local * size_of(state.gradient_type())),
          *there = reinterpret_cast<float*>(packed);
    copy_rows(*device_, 1, bytes / sizeof(float), pack ? here : there, 0, pack ? there : here, 0);
    packed += bytes;
  }
}

// Gives the device its number of terms (NumericsOptions::reproducible_degree).
template <class Exec>
WEFT_COLD void fix_terms_of_sums(Device<Exec>& device, std::size_t degree, std::size_t ranks) {
  if constexpr (!kernels::detail::on_host<Exec>)
    throw_error<UsageError>(
        {"numerics.reproducible_degree: libraries of GPUs choose a kernel by the shapes of a product, which depend on tp, so it "
         "is for hosts: build weft for hosts, or leave the option out"});
  device.fix_sum_terms(terms_of_rank(tp::name, degree, ranks, device.sum_terms()));
}

template <class HiddenPlacement>
struct TensorPolicy : PlainPolicy {
  using axis = tp;
  using hidden_placement = HiddenPlacement;
  TensorPolicy(const Communicator& comm, DefaultDevice& device, const ModelOptions& options) : reducer(comm, device) {
    if (const std::size_t degree = options.numerics.reproducible_degree; degree != 0)
      fix_terms_of_sums(device, degree, std::size_t(comm.size()));
  }
  Hooks* hooks() { return &reducer; }
  TensorGradientReducer<DefaultDevice::execution_space> reducer;
};

}  // namespace detail

/// M with its large weights cut over tp. HiddenPlacement is the placement of the hidden state between blocks: Invariant<tp>, or
/// Shard<tp, 0> for sequence parallelism. Numerics: equal to one rank up to the rounding of sums of tp terms.
template <class M, class HiddenPlacement = Invariant<tp>>
class TensorParallel;

template <class M, class HiddenPlacement>
inline constexpr int nesting_level<TensorParallel<M, HiddenPlacement>> = 20;

namespace detail {
template <class M, class HiddenPlacement>
inline constexpr bool sound<TensorParallel<M, HiddenPlacement>> = (nesting_level<M> > 20) && sound<M>;
template <class M, class HiddenPlacement>
using TensorBase =
    std::conditional_t<sound<TensorParallel<M, HiddenPlacement>>, Wrapper<TensorPolicy<HiddenPlacement>, M>, Refused<M>>;
}  // namespace detail

template <class M, class HiddenPlacement>
class TensorParallel : public detail::TensorBase<M, HiddenPlacement> {
  static_assert(nesting_level<M> > 20,
                "weft: wrappers nest as DataParallel of TensorParallel of PipelineParallel of a model, each at most once: the "
                "wrapper inside TensorParallel belongs outside it");

 public:
  using detail::TensorBase<M, HiddenPlacement>::TensorBase;
};

}  // namespace weft

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class TensorGradientReducer<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft::detail
#endif
