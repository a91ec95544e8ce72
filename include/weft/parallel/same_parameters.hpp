// SPDX-License-Identifier: Apache-2.0
#pragma once
// The comparison of parameters that several ranks hold. A parameter that is not cut over an axis must have the same bits on all
// of its ranks, else they train different models and report one loss. Ranks compare a hash of each parameter, in one small
// all-reduce per axis.
//
//   model.require_equal_parameters();   // Optimizer::step calls it: ModelOptions::numerics.compare_every

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/context/axes_in_force.hpp>
#include <weft/core/error.hpp>
#include <weft/core/hash.hpp>
#include <weft/device/offload_store.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/tensor/hash_elements.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

/// An axis whose ranks hold the same parameters, except for those that are cut over it.
struct CopyAxis {
  std::string_view name;
  unsigned bit;
  Communicator ranks;
};

/// Hashes of the parameters of this rank, each computed once.
template <class Exec>
class ParameterHashes {
 public:
  ParameterHashes(Device<Exec>& device, const std::vector<ParameterState*>& states);

  /// The hash of all elements of the i-th parameter that this rank keeps between steps.
  std::uint64_t whole(std::size_t i);
  /// The hash of the runs that several ranks of the axis hold.
  std::uint64_t shared(std::size_t i);

 private:
  // Values in a store are fetched.
  Buffer value_of(const ParameterState& state);

  Device<Exec>* device_;
  const std::vector<ParameterState*>* states_;
  std::vector<std::uint64_t> whole_;
  std::vector<bool> made_;
};

template <class Exec>
ParameterHashes<Exec>::ParameterHashes(Device<Exec>& device, const std::vector<ParameterState*>& states)
    : device_(&device), states_(&states), whole_(states.size(), 0), made_(states.size(), false) {}

template <class Exec>
std::uint64_t ParameterHashes<Exec>::whole(std::size_t i) {
  if (made_[i]) return whole_[i];
  made_[i] = true;
  const ParameterState& state = *(*states_)[i];
  const Buffer value = value_of(state);
  return whole_[i] = hash_elements(*device_, value.get(), state.kept(), size_of(state.kept_type()));
}

template <class Exec>
std::uint64_t ParameterHashes<Exec>::shared(std::size_t i) {
  const ParameterState& state = *(*states_)[i];
  const std::size_t element = size_of(state.kept_type()), bytes = state.kept() * element;
  const Tensor<std::int8_t, Exec> value(*device_, {bytes}, value_of(state));
  const std::vector<std::int8_t> host = copy_to_host(value);
  std::uint64_t all = 1;
  for (const Run& run : state.runs())
    if (run.shared) all = hash_of(all, hash_bytes(host.data() + run.local * element, run.length * element));
  return all;
}

template <class Exec>
Buffer ParameterHashes<Exec>::value_of(const ParameterState& state) {
  if (!state.storage().store() || state.value()) return state.value();
  const std::size_t bytes = state.kept() * size_of(state.type());
  Buffer value = device_->allocate(bytes);
  read_record(*device_, *state.storage().store(), state.storage().record(), value.get(), bytes);
  return value;
}

/// One item that an axis compares: a parameter, or a part of it that only some ranks of the axis hold.
struct CopySlot {
  std::size_t parameter;
  bool mine, shared_runs;
};

// Adds the items of a parameter on an axis: one for all ranks, or one for each part that some ranks share, one of which is this
// rank's.
void add_slots(std::vector<CopySlot>& slots, std::size_t i, const ParameterState& state, const CopyAxis& axis,
               std::size_t replicate);

[[noreturn]] void refuse_copies(const CopyAxis& axis, const std::string& name, bool mine, std::uint64_t hash, std::size_t differ,
                                std::size_t compared);

/// Throws Error on all ranks of an axis on which copies of a parameter differ. Collective over each axis.
template <class Exec>
WEFT_COLD void require_equal_copies(Device<Exec>& device, const std::vector<ParameterState*>& states,
                                    const std::vector<CopyAxis>& axes, std::size_t replicate) {
  ParameterHashes<Exec> hashes(device, states);
  for (const CopyAxis& axis : axes) {
    std::vector<CopySlot> slots;
    for (std::size_t i = 0; i < states.size(); ++i) add_slots(slots, i, *states[i], axis, replicate);
    if (slots.empty()) continue;
    const auto hash_of_slot = [&](const CopySlot& slot) {
      return !slot.mine ? 0 : slot.shared_runs ? hashes.shared(slot.parameter) : hashes.whole(slot.parameter);
    };
    // The largest hash and, as its complement, the smallest one; the zeros of ranks that hold no part change neither.
    std::vector<std::uint64_t> extremes(2 * slots.size(), 0);
    for (std::size_t i = 0; i < slots.size(); ++i)
      if (slots[i].mine) extremes[2 * i + 1] = ~(extremes[2 * i] = hash_of_slot(slots[i]));
    axis.ranks.all_reduce(extremes, Reduction::max);
    std::size_t differ = 0, first = 0;
    for (std::size_t i = slots.size(); i-- > 0;) {
      if (extremes[2 * i] == ~extremes[2 * i + 1] || (extremes[2 * i] == 0 && extremes[2 * i + 1] == 0)) continue;
      ++differ;
      first = i;
    }
    if (differ != 0)
      refuse_copies(axis, states[slots[first].parameter]->name(), slots[first].mine, hash_of_slot(slots[first]), differ,
                    slots.size());
  }
}

/// The same for the axes in force.
void require_equal_parameters(DefaultDevice& device, const AxesInForce& axes, const std::vector<ParameterState*>& states,
                              std::size_t replicate);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/parallel/same_parameters_impl.hpp>
#endif

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class ParameterHashes<Kokkos::DefaultHostExecutionSpace>;
extern template void require_equal_copies(Device<Kokkos::DefaultHostExecutionSpace>&, const std::vector<ParameterState*>&,
                                          const std::vector<CopyAxis>&, std::size_t);
}  // namespace weft::detail
#endif
