// SPDX-License-Identifier: Apache-2.0
#pragma once
// The step of an optimizer whose state is in a store (ModelOptions::shard.offload). One parameter after the other is read to the
// device with its state, updated and written back. Only the type Offload includes this header, so only programs that offload
// compile it.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/error.hpp>
#include <weft/optim/offload.hpp>
#include <weft/optim/slot.hpp>

namespace weft::optim {

struct OffloadParts {
  /// Makes records for the state of a new slot. The slot's buffers are empty from here on.
  void (*keep)(DefaultDevice&, weft::detail::Store&, Slot&);
  /// A step: `apply(call, slot)` updates a slot that is on the device and due. It takes effect on all ranks or on none.
  void (*update)(DefaultDevice&, weft::detail::Store&, const Communicator&, std::vector<Slot>&,
                 void (*apply)(const void* call, Slot&), const void* call);
};

namespace detail {

template <class Device>
class OffloadedSlots {
 public:
  OffloadedSlots(Device& device, weft::detail::Store& store) : device_(device), store_(store) {}

  WEFT_COLD void keep(Slot& slot) {
    const ParameterState& state = *slot.state;
    const std::size_t bytes = state.kept() * size_of(state.gradient_type()), value_bytes = state.kept() * size_of(state.type());
    stored(slot, [&](weft::detail::Buffer&) { slot.records.push_back(store_.record(bytes)); });
    if (slot.master) weft::detail::write_record(device_, store_, slot.records.front(), slot.master.get(), bytes);
    if (guarded(slot)) {
      slot.records.push_back(store_.record(value_bytes));
      weft::detail::write_record(device_, store_, slot.records.back(), state.value().get(), value_bytes);
    }
    slot.master.reset();
  }

  template <class Apply>
  WEFT_COLD void update(const Communicator& communicator, std::vector<Slot>& slots, const Apply& apply) {
    std::string failure;
    std::size_t done = 0;
    // If copies overlap with computation, the next parameter is read while this one is updated.
    Visit next;
    try {
      if (traffic_.beside && !slots.empty()) next = fetch(slots.front());
      for (Slot& slot : slots) {
        ++done;
        if (done < slots.size()) read_ahead(slots[done]);
        Visit visit = traffic_.beside ? std::exchange(next, Visit()) : fetch(slot);
        traffic_.arrive(device_);
        if (traffic_.beside && done < slots.size()) next = fetch(slots[done]);
        if (slot.due()) update_one(slot, visit, apply);
      }
      traffic_.settle();
    } catch (const StorageError& error) {
      failure = error.what();
    }
    double failed = failure.empty() ? 0 : 1;
    if (store_.may_fail()) communicator.all_reduce(std::span<double>(&failed, 1), Reduction::max);
    if (failed == 0) return store_.commit();
    store_.roll_back();
    for (std::size_t i = 0; i < done; ++i)
      if (const Slot& slot = slots[i]; slot.due() && guarded(slot))
        weft::detail::read_record(device_, store_, slot.records.back(), slot.state->value().get(),
                                  slot.state->kept() * size_of(slot.state->type()));
    throw_error<StorageError>({failure.empty() ? "offload: the file of another rank failed in this optimizer step"
                                               : std::string_view(failure).substr(6),
                               "; parameters and optimizer state are unchanged"});
  }

 private:
  // Calls f for each buffer of a slot with a record, in order.
  template <class F>
  static void stored(Slot& slot, F&& f) {
    if (slot.state->type() != slot.state->gradient_type()) f(slot.master);
    for (weft::detail::Buffer& kept : slot.kept) f(kept);
  }
  // True if a parameter on the device needs a record, from which it is restored if a step fails midway.
  bool guarded(const Slot& slot) const { return store_.may_fail() && !slot.state->storage().store(); }

  void read_ahead(const Slot& slot) const {
    if (!slot.due()) return;
    const std::size_t written_only = guarded(slot) ? 1 : 0;
    for (std::size_t i = 0; i + written_only < slot.records.size(); ++i) store_.read_ahead(slot.records[i]);
    if (slot.state->storage().store()) slot.state->storage().store()->read_ahead(slot.state->storage().record());
  }
  // The stored buffers of a slot while they are on the device, or being copied there.
  struct Visit {
    Slot here;
    weft::detail::Buffer value;
  };
  Visit fetch(const Slot& slot) {
    ParameterState& state = *slot.state;
    Visit visit{{&state, nullptr, std::vector<weft::detail::Buffer>(slot.kept.size()), {}}, nullptr};
    visit.here.begun = slot.begun;
    if (!slot.due()) return visit;
    const std::size_t bytes = state.kept() * size_of(state.gradient_type()), value_bytes = state.kept() * size_of(state.type());
    std::size_t record = 0;
    stored(visit.here, [&](weft::detail::Buffer& buffer) {
      traffic_.fetch(device_, store_, slot.records[record++], (buffer = device_.allocate(bytes)).get(), bytes);
    });
    if (state.storage().store())
      traffic_.fetch(device_, *state.storage().store(), state.storage().record(),
                     (visit.value = device_.allocate(value_bytes)).get(), value_bytes);
    return visit;
  }
  template <class Apply>
  void update_one(Slot& slot, Visit& visit, const Apply& apply) {
    ParameterState& state = *slot.state;
    const std::size_t bytes = state.kept() * size_of(state.gradient_type()), value_bytes = state.kept() * size_of(state.type());
    struct Lent {  // keeps the value on the device only during the update
      ParameterState& state;
      ~Lent() {
        if (state.storage().store()) state.storage().set_value(nullptr);
      }
    } lent{state};
    if (state.storage().store()) state.storage().set_value(std::move(visit.value));
    apply(visit.here);
    std::size_t record = 0;
    stored(visit.here,
           [&](weft::detail::Buffer& buffer) { traffic_.put(device_, store_, slot.records[record++], buffer, bytes); });
    if (state.storage().store())
      traffic_.put(device_, *state.storage().store(), state.storage().record(), state.value(), value_bytes);
    else if (guarded(slot)) weft::detail::write_record(device_, store_, slot.records.back(), state.value().get(), value_bytes);
  }

  Device& device_;
  weft::detail::Store& store_;
  weft::detail::RecordTraffic<typename Device::execution_space>& traffic_ =
      device_.template cache<weft::detail::RecordTraffic<typename Device::execution_space>>();
};

template <class Device>
const OffloadParts& offload_parts() {
  static constexpr OffloadParts parts{
      [](Device& device, weft::detail::Store& store, Slot& slot) { OffloadedSlots(device, store).keep(slot); },
      [](Device& device, weft::detail::Store& store, const Communicator& communicator, std::vector<Slot>& slots,
         void (*apply)(const void*, Slot&), const void* call) {
        OffloadedSlots(device, store).update(communicator, slots, [&](Slot& slot) { apply(call, slot); });
      }};
  return parts;
}

}  // namespace detail

}  // namespace weft::optim
