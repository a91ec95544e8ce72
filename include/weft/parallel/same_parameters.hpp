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
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/error.hpp>
#include <weft/core/hash.hpp>
#include <weft/device/offload_store.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/pipeline/axes_in_force.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

/// An axis whose ranks hold the same parameters, except for those that are cut over it.
struct CopyAxis {
  std::string_view name;
  unsigned bit;
  Communicator ranks;
};

// out[lane] = the hash of the elements lane, lane + lanes, ...
template <class Exec, class Word>
void hash_lanes(Device<Exec>& device, std::size_t count, const Word* in, std::size_t lanes, std::uint64_t* out) {
  for_each_index(
      device, {"hash", count * sizeof(Word)}, lanes, KOKKOS_LAMBDA(const std::size_t lane) {
        std::uint64_t state = lane;
        for (std::size_t i = lane; i < count; i += lanes) {
          state ^= in[i];
          state = ((state << 29) | (state >> 35)) * 0x9E3779B97F4A7C15u;
        }
        out[lane] = state;
      });
}

/// A hash of `count` elements of `element_bytes` in the device's memory. In the host's memory blocks of bytes are hashed in
/// order, else lanes of interleaved elements. All ranks of a program use the same method.
template <class Exec>
std::uint64_t hash_elements(Device<Exec>& device, const void* data, std::size_t count, std::size_t element_bytes) {
  if constexpr (on_host<Exec>) {
    constexpr std::size_t block = 1u << 18;
    const std::size_t bytes = count * element_bytes, blocks = (bytes + block - 1) / block;
    device.exec().fence("weft: before a hash");
    if (device.rehearsal() != nullptr) return bytes;
    if (blocks <= 1) return hash_bytes(data, bytes);
    std::vector<std::uint64_t> hashes(blocks);
    std::uint64_t* out = hashes.data();
    const char* in = static_cast<const char*>(data);
    for_each_index(device, {"hash", bytes}, blocks,
                   [=](std::size_t i) { out[i] = hash_bytes(in + i * block, std::min(block, bytes - i * block), i); });
    return hash_bytes(out, blocks * sizeof(std::uint64_t), bytes);
  } else {
    constexpr std::size_t lanes = 1u << 16;
    Tensor<std::uint64_t, Exec> hashes(device, {std::min(std::max<std::size_t>(1, count), lanes)});
    std::uint64_t* out = hashes.data();
    const std::size_t stride = hashes.size();
    if (element_bytes == 2) hash_lanes(device, count, static_cast<const std::uint16_t*>(data), stride, out);
    else if (element_bytes == 4) hash_lanes(device, count, static_cast<const std::uint32_t*>(data), stride, out);
    else hash_lanes(device, count, static_cast<const std::uint64_t*>(data), stride, out);
    const std::vector<std::uint64_t> host = copy_to_host(hashes);
    return hash_bytes(host.data(), host.size() * sizeof(std::uint64_t), count);
  }
}

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
extern template std::uint64_t hash_elements(Device<Kokkos::DefaultHostExecutionSpace>&, const void*, std::size_t, std::size_t);
extern template void require_equal_copies(Device<Kokkos::DefaultHostExecutionSpace>&, const std::vector<ParameterState*>&,
                                          const std::vector<CopyAxis>&, std::size_t);
}  // namespace weft::detail
#endif
