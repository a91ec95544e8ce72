// SPDX-License-Identifier: Apache-2.0
#pragma once
// The bits of one micro-batch's gradients on one rank, as hashes: taken while a step runs, and again while another rank computes
// the micro-batch a second time (pipeline/recheck.hpp).
//
//   GradientBits<Exec> bits(device);
//   bits.open();       // a unit's layers are about to add the micro-batch's gradients
//   bits.add(unit);    // they have; nothing is summed over ranks yet
//   bits.words(states) == bits_of_another_rank

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <weft/engine/forwarding_accumulator.hpp>
#include <weft/tensor/hash_elements.hpp>

namespace weft::detail {

template <class Exec>
class GradientBits {
 public:
  explicit GradientBits(Device<Exec>& device) : device_(&device) {}

  void clear() { of_.clear(); }
  /// Layers are about to add: each gradient counts once until the next call.
  void open() { added_.clear(); }
  /// Hashes the gradients of this unit to which something was added.
  WEFT_COLD void add(const Unit& unit) {
    for_each_added(unit, [&](ParameterState& state, Hashes& of) {
      if (std::find(added_.begin(), added_.end(), &state) != added_.end()) return;
      added_.push_back(&state);
      if (of.mixed) return;
      of.last = hash(state);
      of.after.push_back(hash_of(of.after.empty() ? 1 : of.after.back(), of.last));
    });
  }
  /// The layers have done a first part of the unit and will resume: meanwhile other micro-batches may add to the same memory.
  WEFT_COLD void leave(const Unit& unit) {
    for_each_added(unit, [&](ParameterState& state, Hashes& of) { of.last = hash(state); });
  }
  /// They resume, or begin with a unit whose gradients another one has too: gradients that have changed meanwhile are sums over
  /// micro-batches, and are not compared from here on.
  WEFT_COLD void resume(const Unit& unit) {
    for_each_added(unit, [&](ParameterState& state, Hashes& of) { of.mixed = of.mixed || of.last != hash(state); });
  }

  /// For each parameter the number of units that added to it and the hash after the last one. `like`: the words of another rank;
  /// hashes are then taken after as many units as there, since its other units' gradients may be sums.
  WEFT_COLD std::vector<std::uint64_t> words(std::span<ParameterState* const> states,
                                             std::span<const std::uint64_t> like = {}) const {
    std::vector<std::uint64_t> all;
    for (std::size_t i = 0; i < states.size(); ++i) {
      const auto at = of_.find(states[i]);
      const std::size_t have = at == of_.end() ? 0 : at->second.after.size(),
                        count = like.empty() ? have : std::min<std::size_t>(have, like[2 * i]);
      all.push_back(count);
      all.push_back(count == 0 ? 0 : at->second.after[count - 1]);
    }
    return all;
  }

 private:
  struct Hashes {
    std::vector<std::uint64_t> after;  // each unit that added, with those before
    std::uint64_t last = 0;            // of the gradient, when the micro-batch's layers were last there
    bool mixed = false;
  };
  template <class F>
  void for_each_added(const Unit& unit, F&& f) {
    for (ParameterState* state : unit.parameters)
      if (state->trainable() && !state->gradients().fresh() && state->gradients().layer_buffer() && state->size() != 0)
        f(*state, of_[state]);
  }
  std::uint64_t hash(ParameterState& state) const {
    std::uint64_t hash = 0;
    state.gradient_span(
        [&](auto gradient) { hash = hash_elements(*device_, gradient.data(), gradient.size(), sizeof(gradient[0])); });
    return hash;
  }
  Device<Exec>* device_;
  std::unordered_map<const ParameterState*, Hashes> of_;
  std::vector<const ParameterState*> added_;
};

/// Records the bits of the first micro-batch of the steps in which it is asked to.
template <class Exec>
class RecordedGradients final : public ForwardingAccumulator {
 public:
  RecordedGradients(Device<Exec>& device, std::shared_ptr<GradientAccumulator> of)
      : ForwardingAccumulator(std::move(of)), bits_(device) {}

  void record(bool on) {
    if (on) bits_.clear();
    on_ = on;
  }
  const GradientBits<Exec>& bits() const { return bits_; }

  void open(const Unit& unit, std::size_t micro) override {
    micro_ = micro;
    if (on_ && micro == 0) bits_.open();
    if (on_ && micro == 0 && !inner().separates_terms()) bits_.resume(unit);
    inner().open(unit, micro);
  }
  void leave(const Unit& unit, std::size_t micro) override {
    if (on_ && micro == 0) bits_.leave(unit);
    inner().leave(unit, micro);
  }
  void close(Unit& unit, std::size_t micro, AllHooks hooks) override {
    if (on_ && micro == 0) bits_.add(unit);
    inner().close(unit, micro, hooks);
  }
  void ready(Unit& owned, AllHooks hooks, bool last) override {
    if (on_ && micro_ == 0) bits_.add(owned);  // a Module's children are not closed
    inner().ready(owned, hooks, last);
  }

 private:
  GradientBits<Exec> bits_;
  std::size_t micro_ = 0;  // of the last unit that was opened
  bool on_ = false;
};

/// The gradients of a micro-batch that is computed again: they are hashed and dropped, and no sum is made.
template <class Exec>
class RecomputedGradients final : public GradientAccumulator {
 public:
  RecomputedGradients(Device<Exec>& device, bool separates_terms)
      : bits_(device), device_(&device), separates_(separates_terms) {}

  const GradientBits<Exec>& bits() const { return bits_; }

  bool separates_terms() const override { return separates_; }
  void find_uses(std::span<Unit* const>, AllHooks, std::size_t) override {}
  std::span<Unit> second_uses() override { return {}; }
  void begin(const BatchShare&, AllHooks, std::size_t, std::size_t) override {}
  WEFT_COLD void open(const Unit& unit, std::size_t) override {
    bits_.open();
    if (!separates_) return;
    for (ParameterState* state : unit.parameters) {
      if (!state->trainable()) continue;
      open_layer_gradient(*device_, *state);
      state->gradients().begin_term(state->gradients().layer_buffer());
    }
  }
  void leave(const Unit&, std::size_t) override {}
  WEFT_COLD void close(Unit& unit, std::size_t, AllHooks) override {
    bits_.add(unit);
    if (!separates_) return;
    for (ParameterState* state : unit.parameters)
      if (state->trainable()) state->gradients().end_term(state->gradients().layer_buffer());
  }
  WEFT_COLD void ready(Unit& owned, AllHooks hooks, bool) override {
    bits_.add(owned);
    for (std::size_t i = hooks.size(); i-- > 0;) hooks[i]->discard_gradients(owned);
  }
  void finish(std::span<const Tie>, std::span<Unit>, AllHooks) override {}
  hook::AnyHook* bucket_hook(std::size_t, hook::AnyHook*) override { return nullptr; }
  const ReductionTree* order_over(std::size_t, bool) override { return nullptr; }
  std::vector<double> loss_terms(std::vector<double> losses, std::size_t, std::size_t) const override { return losses; }
  double norm(const Communicator&, const std::vector<GradientPart>&, const SquaredNorm&) override { return 0; }

 private:
  GradientBits<Exec> bits_;
  Device<Exec>* device_;
  bool separates_;
};

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class GradientBits<Kokkos::DefaultHostExecutionSpace>;
extern template class RecordedGradients<Kokkos::DefaultHostExecutionSpace>;
extern template class RecomputedGradients<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft::detail
#endif
