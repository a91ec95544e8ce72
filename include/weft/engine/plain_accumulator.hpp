// SPDX-License-Identifier: Apache-2.0
#pragma once
// The accumulator of runs that need not be reproducible over layouts: gradients of micro-batches are added in place in the order
// in which they arrive, and data ranks add theirs in rank order.
//
//   PlainAccumulator<Exec> accumulator(device);

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/engine/gradient_accumulator.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/kernels/squared_norm.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

template <class Exec>
class PlainAccumulator final : public GradientAccumulator {
 public:
  explicit PlainAccumulator(Device<Exec>& device) : device_(&device) {}

  bool separates_terms() const override { return false; }
  void find_uses(std::span<Unit* const>, AllHooks, std::size_t) override {}
  std::span<Unit> second_uses() override { return {}; }

  void begin(const BatchShare&, AllHooks hooks, std::size_t, std::size_t) override;
  void open(const Unit&, std::size_t) override {}
  void leave(const Unit&, std::size_t) override {}
  void close(Unit&, std::size_t, AllHooks) override {}
  void ready(Unit& owned, AllHooks hooks, bool last) override;
  /// The stages' gradients are added after the sums inside data parallelism and before the sum over data ranks.
  WEFT_COLD void finish(std::span<const Tie> ties, std::span<Unit> tied, AllHooks hooks) override;

  hook::AnyHook* bucket_hook(std::size_t, hook::AnyHook* own) override { return own; }
  const ReductionTree* order_over(std::size_t, bool) override { return nullptr; }
  std::vector<double> loss_terms(std::vector<double> losses, std::size_t, std::size_t) const override;
  double norm(const Communicator& communicator, const std::vector<GradientPart>& parts, const SquaredNorm& square) override;
  bool squares_on_device(const Communicator& communicator, std::vector<GradientPart> parts, const SquaredNorm& square,
                         double* sum) override;

 private:
  Tensor<double, Exec> squares_of(const std::vector<GradientPart>& parts, const SquaredNorm& square);

  Device<Exec>* device_;
};

template <class Exec>
void PlainAccumulator<Exec>::begin(const BatchShare&, AllHooks hooks, std::size_t, std::size_t) {
  for (Hooks* wrapper : hooks) wrapper->begin_sums(*this);
}

template <class Exec>
void PlainAccumulator<Exec>::ready(Unit& owned, AllHooks hooks, bool last) {
  if (!last && std::none_of(hooks.begin(), hooks.end(), [](Hooks* wrapper) { return wrapper->reduces_each_micro_batch(); }))
    return;
  for (ParameterState* state : owned.parameters)
    if (state->gradients().fresh()) zero_gradient(*device_, *state);  // unused on this rank, but other ranks wait for its sum
  owned.complete = last;
  for (std::size_t i = hooks.size(); i-- > 0;) hooks[i]->gradients_ready(owned);
}

template <class Exec>
void PlainAccumulator<Exec>::finish(std::span<const Tie> ties, std::span<Unit> tied, AllHooks hooks) {
  for (std::size_t i = 0; i < ties.size(); ++i) {
    ParameterState& state = *ties[i].state;
    if (!state.trainable()) continue;
    if (state.gradients().fresh()) zero_gradient(*device_, state);
    notify(tied[i], hooks, false);
    if (ties[i].holders)
      ties[i].holders->all_reduce(comm::elements_of<float, double>(state.gradient_type(), memory_kind<Tensor<float, Exec>>(),
                                                                   state.gradients().layer_buffer().get(), state.size()));
    notify(tied[i], hooks, true);
  }
  agree_on_touched(ties);
  for (Hooks* wrapper : hooks) wrapper->finish();
}

template <class Exec>
std::vector<double> PlainAccumulator<Exec>::loss_terms(std::vector<double> losses, std::size_t, std::size_t) const {
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return {sum};
}

template <class Exec>
Tensor<double, Exec> PlainAccumulator<Exec>::squares_of(const std::vector<GradientPart>& parts, const SquaredNorm& square) {
  Tensor<double, Exec> squares(*device_, {std::max<std::size_t>(1, parts.size())});
  if (square.all == nullptr || !square.all(square.optimizer, parts, squares.data()))
    for (std::size_t i = 0; i < parts.size(); ++i) square.call(square.optimizer, parts[i], squares.data() + i);
  return squares;
}

template <class Exec>
double PlainAccumulator<Exec>::norm(const Communicator& communicator, const std::vector<GradientPart>& parts,
                                    const SquaredNorm& square) {
  double sum = 0;
  const auto host = copy_to_host(squares_of(parts, square));
  // A part that another rank counts is checked too: if only this rank's copy is not finite, all ranks must stop.
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].counted || !std::isfinite(host[i])) sum += host[i];
  communicator.all_reduce(std::span<double>(&sum, 1));
  return std::sqrt(sum);
}

template <class Exec>
bool PlainAccumulator<Exec>::squares_on_device([[maybe_unused]] const Communicator& communicator,
                                               [[maybe_unused]] std::vector<GradientPart> parts,
                                               [[maybe_unused]] const SquaredNorm& square, [[maybe_unused]] double* sum) {
  if constexpr (on_host<Exec>) {
    return false;
  } else {
    constexpr comm::MemoryKind memory = memory_kind<Tensor<double, Exec>>();
    const bool alone = communicator.size() == 1;
    if (!alone && !communicator.supports(comm::Operation::all_reduce, DataType::float64, memory)) return false;
    const auto checked = std::stable_partition(parts.begin(), parts.end(), [](const GradientPart& part) { return part.counted; });
    const Tensor<double, Exec> squares = squares_of(parts, square);
    kernels::add_squares(*device_, std::size_t(checked - parts.begin()), parts.size(), squares.data(), sum);
    if (!alone) communicator.all_reduce(comm::elements_of<double>(DataType::float64, memory, sum, 1));
    return true;
  }
}

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class PlainAccumulator<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft::detail
#endif
