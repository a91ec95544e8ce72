// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/flight_recorder.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>

#include <weft/comm/flight_file.hpp>
#include <weft/comm/flight_recorder.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm {

WEFT_INLINE FlightRecorder::FlightRecorder() : timed_(detail::flight_folder() != nullptr) {}

WEFT_INLINE FlightRecorder::~FlightRecorder() {
  if (rank_ >= 0) detail::FlightRecorders::remove(*this);
}

WEFT_COLD WEFT_INLINE void FlightRecorder::belongs_to(int rank, int world, std::string_view backend) {
  const bool known = rank_ >= 0;
  rank_ = rank;
  world_ = world;
  backend_ = backend;
  if (!known) detail::FlightRecorders::add(*this);
}

WEFT_COLD WEFT_INLINE std::shared_ptr<FlightRecorder::Line> FlightRecorder::open(std::string_view axis,
                                                                                 std::span<const int> ranks,
                                                                                 std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (lines_.size() >= crowded_) forget_closed();
  auto line = std::make_shared<Line>();
  line->axis = axis;
  line->ranks.assign(ranks.begin(), ranks.end());
  line->number = number;
  line->index = opened_++;
  line->times = &times_.axis(axis);
  lines_.push_back(line);
  return line;
}

WEFT_COLD WEFT_INLINE void FlightRecorder::forget_closed() {
  const std::uint64_t next = begun();
  std::erase_if(lines_, [&](const std::shared_ptr<Line>& line) {
    return line.use_count() == 1 && (line->newest == 0 || line->newest + capacity <= next);
  });
  crowded_ = std::max<std::size_t>(64, 2 * lines_.size());  // a look costs as much as it has found room for
}

WEFT_INLINE std::uint64_t FlightRecorder::begin(Line& line, std::uint64_t sequence, const Call& call) {
  constexpr auto put = std::memory_order_release;
  const std::uint64_t number = next_.load(std::memory_order_relaxed);
  const bool message = is_point_to_point(call.operation);
  Entry& entry = entries_[number % capacity];
  __builtin_prefetch(&entries_[(number + 1) % capacity], 1);  // the next call's line has long left the cache
  entry.tag.store(0, std::memory_order_relaxed);
  entry.place.store(sequence, put);
  std::atomic_ref counter(message ? line.messages : line.collectives);  // others only read it
  const std::uint64_t step = counter.load(std::memory_order_relaxed) + 1;
  counter.store(step, std::memory_order_relaxed);
  entry.step.store(step, put);
  entry.signature.store(signature(call), put);
  entry.count.store(call.count, put);
  const bool known = message && std::size_t(call.root) < line.ranks.size();
  entry.peer.store(line.index << peer_bits | (known ? std::uint64_t(line.ranks[std::size_t(call.root)]) + 1 : 0), put);
  entry.begin.store(now(), put);
  entry.end.store(0, put);
  entry.tag.store(number + 1, put);
  line.newest = number + 1;
  next_.store(number + 1, put);
  return number;
}

WEFT_INLINE void FlightRecorder::complete(std::uint64_t number) {
  Entry& entry = entries_[number % capacity];
  if (entry.tag.load(std::memory_order_relaxed) == number + 1) entry.end.store(now(), std::memory_order_release);
}

WEFT_COLD WEFT_INLINE bool FlightRecorder::read(std::uint64_t number, Record& record) const {
  constexpr auto get = std::memory_order_acquire;
  const Entry& entry = entries_[number % capacity];
  if (entry.tag.load(get) != number + 1) return false;
  record.number = number;
  record.sequence = entry.place.load(get);
  record.step = entry.step.load(get);
  record.signature = entry.signature.load(get);
  record.count = entry.count.load(get);
  const std::uint64_t peer = entry.peer.load(get);
  record.line = peer >> peer_bits;
  record.peer = int(peer & ((std::uint64_t(1) << peer_bits) - 1)) - 1;
  record.begin = entry.begin.load(get);
  record.end = entry.end.load(get);
  return entry.tag.load(get) == number + 1;
}

WEFT_COLD WEFT_INLINE std::vector<FlightRecorder::Record> FlightRecorder::records(std::size_t most) const {
  const std::uint64_t next = begun();
  std::vector<Record> all;
  for (std::uint64_t number = next - std::min<std::uint64_t>({next, most, capacity}); number < next; ++number)
    if (Record record; read(number, record)) all.push_back(record);
  return all;
}

WEFT_COLD WEFT_INLINE std::vector<FlightRecorder::Line> FlightRecorder::lines() const {
  const std::lock_guard lock(mutex_);
  std::vector<Line> all;
  for (const auto& line : lines_)
    all.push_back({line->axis, line->ranks, line->number, line->index, 0, std::atomic_ref(line->collectives).load(), 0});
  return all;
}

WEFT_COLD WEFT_INLINE std::string FlightRecorder::text(std::size_t most) const {
  const std::vector<Record> newest = records(most);
  const std::lock_guard lock(mutex_);
  std::string out;
  for (auto record = newest.rbegin(); record != newest.rend(); ++record) {
    const auto line = std::ranges::lower_bound(lines_, record->line, {}, [](const auto& known) { return known->index; });
    const bool known = line != lines_.end() && (*line)->index == record->line;
    weft::detail::append_to(
        out, {out.empty() ? "" : ", ", describe(record->signature, record->count), " on ",
              known ? std::string_view((*line)->axis) : "?", " #", record->sequence, record->end != 0 ? "" : " (not complete)"});
  }
  if (out.empty()) out = "nothing";
  return out;
}

}  // namespace weft::comm
