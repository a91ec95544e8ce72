// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/communicator.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/communicator.hpp>
#include <weft/core/inline.hpp>
#include <weft/device/region.hpp>

namespace weft {

WEFT_OUT_OF_LINE WEFT_INLINE Communicator::Communicator() : Communicator(std::make_shared<comm::SelfGroup>()) {}

WEFT_OUT_OF_LINE WEFT_INLINE Communicator::Communicator(const Communicator& other) : group_(other.group_), order_(other.order_) {}

WEFT_OUT_OF_LINE WEFT_INLINE Communicator& Communicator::operator=(Communicator other) noexcept {
  group_.swap(other.group_);
  order_ = other.order_;
  return *this;
}

WEFT_OUT_OF_LINE WEFT_INLINE Communicator::~Communicator() {}

WEFT_OUT_OF_LINE WEFT_INLINE Communicator Communicator::split(int color, int key, std::string axis,
                                                              const comm::SplitPlace& place) const {
  if (color < 0) throw_error<UsageError>({"split: color ", color, " is negative"});
  if (place.rank < 0 || place.rank >= place.size || place.size > size())
    throw_error<UsageError>({"split: rank ", place.rank, " of ", place.size, " out of ", size(), " ranks"});
  return Communicator(group_->split_placed(color, key, std::move(axis), place), order_);
}

WEFT_OUT_OF_LINE WEFT_INLINE comm::Call Communicator::checked(comm::Call call, const comm::Flight& flight) const {
  // A span's type does not show its memory space.
  if (order_.device != nullptr && call.memory == comm::MemoryKind::host)
    if (const void* address = call.output != nullptr ? call.output : call.input;
        address != nullptr && order_.device->holds(address))
      call.memory = comm::MemoryKind::device;
  if (!group_->supports(call.operation, call.type, call.memory))
    throw_error<UsageError>(
        {"the backend ", backend(), " does not do ", describe(call), " in ", name_of(call.memory), " memory"});
  call.order = order_;
  if (flight.recorder != nullptr) {
    call.function = flight.recorder->function();
    comm::RankTimes::Axis& times = *flight.line->times;
    ++times.calls;
    times.bytes += comm::message_bytes(call, size());
  }
  return call;
}

WEFT_OUT_OF_LINE WEFT_INLINE void Communicator::execute(const comm::Call& call) const {
  const trace::Region region([&] { return weft::detail::joined({name_of(call.operation), " ", axis()}); });
  const comm::Flight flight = group_->flight();
  const comm::Call ready = checked(call, flight);
  const comm::Waiting waiting(flight.times());
  group_->execute(ready);
}

WEFT_OUT_OF_LINE WEFT_INLINE Request Communicator::start(const comm::Call& call) const {
  const trace::Region region([&] { return weft::detail::joined({"start ", name_of(call.operation), " ", axis()}); });
  const comm::Flight flight = group_->flight();
  const comm::Call ready = checked(call, flight);
  const comm::Waiting waiting(flight.times());
  return Request(group_->start(ready), flight.times());
}

}  // namespace weft
