// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ranks and parameters at which a gradient stopped being finite. After the sums over ranks every rank has the NaN, so each
// rank checks the additions of its own layers, before any sum: one pass over the gradients per micro-batch, while the option is
// on.
//
//   Model model(mesh, config, {.numerics = {.trace_nonfinite = true}});
//   if (optimizer.step().skipped)
//     for (const auto& [rank, parameter, micro_batch] : find_nonfinite(model)) ...

#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/forwarding_accumulator.hpp>
#include <weft/engine/proof_parameters.hpp>
#include <weft/kernels/squared_norm.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft {

/// A gradient that was not finite before any sum over ranks.
struct NonfiniteGradient {
  int rank = 0;  ///< of the mesh
  std::string parameter;
  std::size_t micro_batch = 0;  ///< of this rank's share of the step, the first in which it was seen
  bool operator==(const NonfiniteGradient&) const = default;
};

namespace detail {

/// Checks each unit's gradients, then passes them to another accumulator.
template <class Exec>
class NonfiniteTrace final : public ForwardingAccumulator {
 public:
  struct Found {
    const ParameterState* state;
    std::size_t micro;
  };

  NonfiniteTrace(Device<Exec>& device, std::shared_ptr<GradientAccumulator> of)
      : ForwardingAccumulator(std::move(of)), device_(&device) {}

  /// The findings of the last step, in the order of this rank's backward.
  const std::vector<Found>& found() const { return found_; }

  void begin(const BatchShare& batch, AllHooks hooks, std::size_t data_rank, std::size_t data_ranks) override {
    found_.clear();
    known_.clear();
    inner().begin(batch, hooks, data_rank, data_ranks);
  }
  void open(const Unit& unit, std::size_t micro) override {
    micro_ = micro;
    inner().open(unit, micro);
  }
  void leave(const Unit& unit, std::size_t micro) override {
    look(unit, micro);
    inner().leave(unit, micro);
  }
  void close(Unit& unit, std::size_t micro, AllHooks hooks) override {
    look(unit, micro);
    inner().close(unit, micro, hooks);
  }
  void ready(Unit& owned, AllHooks hooks, bool last) override {
    if (Proof* const proof = device_->proof(); proof != nullptr) [[unlikely]]
      note(*proof, owned, hooks, last);
    look(owned, micro_);  // custom loops and a Module's children are not closed
    inner().ready(owned, hooks, last);
  }

 private:
  WEFT_COLD void note(Proof& proof, const Unit& unit, AllHooks hooks, bool last) {
    for (const Hooks* const one : hooks) last = last || one->reduces_each_micro_batch();
    if (last && !inner().separates_terms()) prove_local_gradients(proof, unit);
  }
  WEFT_COLD void look(const Unit& unit, std::size_t micro) {
    std::vector<ParameterState*> added;
    for (ParameterState* state : unit.parameters)
      if (state->trainable() && !state->gradients().fresh() && state->gradients().layer_buffer() && state->size() != 0 &&
          !known_.contains(state))
        added.push_back(state);
    if (added.empty()) return;
    Tensor<double, Exec> squares(*device_, {added.size()});
    for (std::size_t i = 0; i < added.size(); ++i)
      added[i]->gradient_span(
          [&](auto gradient) { kernels::squared_norm(*device_, gradient.size(), gradient.data(), squares.data() + i); });
    const auto host = copy_to_host(squares);
    for (std::size_t i = 0; i < added.size(); ++i) {
      if (std::isfinite(host[i])) continue;
      known_.insert(added[i]);
      found_.push_back({added[i], micro});
    }
  }

  Device<Exec>* device_;
  std::size_t micro_ = 0;  // of the last unit that was opened
  std::vector<Found> found_;
  std::unordered_set<const ParameterState*> known_;
};

/// Every rank's findings, on every rank. Collective.
std::vector<NonfiniteGradient> gather_nonfinite(const Communicator& ranks, const std::vector<NonfiniteGradient>& mine);

}  // namespace detail

/// The gradients that were not finite in the model's last training step, before any sum over ranks, the same on every rank: by
/// rank, and of a rank in the order of its backward, so the first is nearest to the loss. A NaN that arises in forward makes all
/// gradients of the ranks it reaches NaN; one that a single layer's backward makes names that parameter and those before it.
/// Squares are added in double: of a gradient in double an element above 1e154 counts as not finite, as for the norm. Collective
/// over the mesh. Throws UsageError without ModelOptions::numerics.trace_nonfinite.
template <class Model>
std::vector<NonfiniteGradient> find_nonfinite(Model& model) {
  using Trace = detail::NonfiniteTrace<typename std::remove_cvref_t<decltype(model.device())>::execution_space>;
  const auto* trace = dynamic_cast<const Trace*>(model.stages().accumulator().get());
  if (trace == nullptr)
    throw_error<UsageError>(
        {"find_nonfinite: the model does not look at its gradients; give it ModelOptions::numerics.trace_nonfinite"});
  std::vector<NonfiniteGradient> mine;
  for (const auto& [state, micro] : trace->found()) mine.push_back({model.communicator().rank(), state->name(), micro});
  return detail::gather_nonfinite(model.communicator(), mine);
}

}  // namespace weft

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class NonfiniteTrace<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft::detail
#endif

#ifndef WEFT_COMPILED
#include <weft/parallel/nonfinite_trace_impl.hpp>
#endif
