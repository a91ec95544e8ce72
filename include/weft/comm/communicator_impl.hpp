// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/communicator.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <cstdio>

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

namespace comm::detail {
/// Marks the begin of a call for tools, inside of its region, and returns its number: bytes, communicator, number among its
/// collectives (or -1), and the world's ranks and the tag of a message; the first rank of a collective's communicator, since
/// those of one split have one number.
WEFT_COLD WEFT_INLINE std::uint64_t mark_call(const Call& call, int rank, int size, const Flight& flight) {
  const bool message = is_point_to_point(call.operation), sends = call.operation == Operation::send;
  const auto world = [&](int one) { return flight.line->ranks[std::size_t(one)]; };
  const bool known = message && std::size_t(std::max(rank, call.root)) < flight.line->ranks.size();
  char text[200];
  std::snprintf(text, sizeof text, "weft call %llu: %.0f bytes, communicator %llu, %lld, from %d to %d, tag %d",
                static_cast<unsigned long long>(++flight.recorder->times().observed), message_bytes(call, size),
                static_cast<unsigned long long>(flight.line->number),
                message ? -1LL : static_cast<long long>(flight.line->collectives),
                known     ? world(sends ? rank : call.root)
                : message ? -1
                          : world(0),
                known ? world(sends ? call.root : rank) : -1, message ? call.tag : -1);
  Kokkos::Profiling::markEvent(text);
  return flight.recorder->times().observed;
}
}  // namespace comm::detail

WEFT_OUT_OF_LINE WEFT_INLINE void Communicator::execute(const comm::Call& call) const {
  const trace::Region region([&] { return weft::detail::joined({name_of(call.operation), " ", axis()}); });
  const comm::Flight flight = group_->flight();
  const comm::Call ready = checked(call, flight);
  const bool observed = weft::detail::is_observed() && flight.line != nullptr;
  const std::uint64_t number = observed ? comm::detail::mark_call(ready, rank(), size(), flight) : 0;
  {
    const comm::Waiting waiting(flight.times());
    group_->execute(ready);
  }
  if (observed) [[unlikely]]
    comm::detail::mark_done(number);
}

WEFT_OUT_OF_LINE WEFT_INLINE Request Communicator::start(const comm::Call& call) const {
  const trace::Region region([&] { return weft::detail::joined({"start ", name_of(call.operation), " ", axis()}); });
  const comm::Flight flight = group_->flight();
  const comm::Call ready = checked(call, flight);
  comm::TimesPlace times = flight.times();
  if (weft::detail::is_observed() && flight.line != nullptr) [[unlikely]]
    times.observed = comm::detail::mark_call(ready, rank(), size(), flight);
  const comm::Waiting waiting(times);
  std::unique_ptr<comm::Pending> pending = group_->start(ready);
  if (pending == nullptr && times.observed != 0) [[unlikely]]
    comm::detail::mark_done(times.observed);
  return Request(std::move(pending), times);
}

}  // namespace weft
