// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensor parallelism (Megatron-LM, arXiv:1909.08053): column- and row-parallel weights, vocabulary-parallel ends. The layers
// know how they are cut; the wrapper binds the axis and pays the debts that the types found: gradients that are Partial<tp>,
// and those of key-value heads that several ranks hold alike.

#include <map>
#include <span>
#include <vector>

#include <weft/kernels/elementwise.hpp>
#include <weft/parallel/wrapper.hpp>

namespace weft {

namespace detail {

template <class Exec>
class TensorDebts : public Hooks {
 public:
  TensorDebts(Communicator comm, Device<Exec>& device) : comm_(std::move(comm)), device_(&device) {}

  bool allocate(ParameterState& state) override {
    // All ranks make the same parameters in the same order, so this is collective.
    if (state.replicas > 1 && !replicas_.contains(state.replicas))
      replicas_.emplace(state.replicas, comm_.split(comm_.rank() / state.replicas, comm_.rank(), "tp"));
    return false;
  }
  void gradients_ready(Unit& unit) override {
    for (ParameterState* state : unit.parameters) {
      if (!(state->pending & axis_bit<tp>)) continue;
      state->pending &= ~axis_bit<tp>;
      if (comm_.size() == 1) continue;
      dispatch_real(state->gradient_type, [&](auto zero) {
        using G = decltype(zero);
        pay(*state, static_cast<G*>(state->layer_gradient().get()));
      });
    }
  }

 private:
  template <class G>
  void pay(ParameterState& state, G* gradient) {
    if (state.replicas == 1) {
      comm_.all_reduce(std::span<G>(gradient, state.size()));
      return;
    }
    // Only the runs that several ranks hold alike: packed, summed, put back.
    std::vector<Run> shared;
    std::size_t size = 0;
    for (const Run& run : shared_runs(state)) {
      shared.push_back(run);
      size += run.length;
    }
    Buffer buffer = device_->allocate(size * sizeof(G));
    G* packed = static_cast<G*>(buffer.get());
    std::size_t at = 0;
    for (const Run& run : shared) kernels::cast<G, G>(*device_, run.length, gradient + run.local, packed + std::exchange(at, at + run.length));
    replicas_.at(state.replicas).all_reduce(std::span<G>(packed, size));
    at = 0;
    for (const Run& run : shared) kernels::cast<G, G>(*device_, run.length, packed + std::exchange(at, at + run.length), gradient + run.local);
  }
  static std::vector<Run> shared_runs(const ParameterState& state) {
    std::vector<Run> runs;
    for (const Run& run : state.layer_runs())
      if (run.shared) runs.push_back(run);
    return runs;
  }

  Communicator comm_;
  Device<Exec>* device_;
  std::map<int, Communicator> replicas_;
};

template <class Stream>
struct TensorPolicy : PlainPolicy {
  using axis = tp;
  using stream = Stream;
  TensorPolicy(const Communicator& comm, DefaultDevice& device, const ModelOptions&) : debts(comm, device) {}
  Hooks* hooks() { return &debts; }
  TensorDebts<DefaultDevice::execution_space> debts;
};

}  // namespace detail

/// M with its large weights cut over tp. Stream: how the hidden state lies between blocks; Invariant<tp>, or Shard<tp, 0> for
/// sequence parallelism. Numerics: equal to one rank up to the rounding of sums of tp terms.
template <class M, class Stream = Invariant<tp>>
class TensorParallel;

template <class M, class Stream>
inline constexpr int nesting_level<TensorParallel<M, Stream>> = 20;

namespace detail {
template <class M, class Stream>
using TensorBase = std::conditional_t<(nesting_level<M> > 20), Wrapper<TensorPolicy<Stream>, M>, Refused>;
}

template <class M, class Stream>
class TensorParallel : public detail::TensorBase<M, Stream> {
  static_assert(nesting_level<M> > 20, "weft: wrappers nest as DataParallel of TensorParallel of PipelineParallel of a model, each at most once: what stands inside TensorParallel here belongs outside it");

 public:
  using detail::TensorBase<M, Stream>::TensorBase;
};

}  // namespace weft
