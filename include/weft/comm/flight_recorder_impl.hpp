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

WEFT_COLD WEFT_INLINE FlightRecorder::Line& FlightRecorder::open(std::string_view axis, std::span<const int> ranks) {
  const std::lock_guard lock(mutex_);
  std::uint64_t ordinal = 0;
  for (const Line& line : lines_)
    ordinal += line.axis == axis && std::equal(ranks.begin(), ranks.end(), line.ranks.begin(), line.ranks.end());
  Line& line = lines_.emplace_back();
  line.axis = axis;
  line.ranks.assign(ranks.begin(), ranks.end());
  line.ordinal = ordinal;
  line.index = lines_.size() - 1;
  return line;
}

WEFT_INLINE std::uint64_t FlightRecorder::begin(Line& line, std::uint64_t sequence, const Call& call) {
  constexpr auto put = std::memory_order_release;
  const std::uint64_t number = next_.load(std::memory_order_relaxed);
  const bool message = is_point_to_point(call.operation);
  Entry& entry = entries_[number % capacity];
  __builtin_prefetch(&entries_[(number + 1) % capacity], 1);  // the next call's line has long left the cache
  entry.tag.store(0, std::memory_order_relaxed);
  entry.place.store(sequence << line_bits | (line.index & ((1u << line_bits) - 1)), put);
  std::atomic_ref counter(message ? line.messages : line.collectives);  // others only read it
  const std::uint64_t step = counter.load(std::memory_order_relaxed) + 1;
  counter.store(step, std::memory_order_relaxed);
  entry.step.store(step, put);
  entry.signature.store(signature(call), put);
  entry.count.store(call.count, put);
  entry.peer.store(
      message && std::size_t(call.root) < line.ranks.size() ? std::uint64_t(line.ranks[std::size_t(call.root)]) + 1 : 0, put);
  entry.begin.store(now(), put);
  entry.end.store(0, put);
  entry.tag.store(number + 1, put);
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
  const std::uint64_t place = entry.place.load(get);
  record.number = number;
  record.line = place & ((1u << line_bits) - 1);
  record.sequence = place >> line_bits;
  record.step = entry.step.load(get);
  record.signature = entry.signature.load(get);
  record.count = entry.count.load(get);
  record.peer = int(entry.peer.load(get)) - 1;
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
  for (const Line& line : lines_)
    all.push_back({line.axis, line.ranks, line.ordinal, line.index, std::atomic_ref(line.collectives).load(), 0});
  return all;
}

WEFT_COLD WEFT_INLINE std::string FlightRecorder::text(std::size_t most) const {
  const std::vector<Record> newest = records(most);
  const std::lock_guard lock(mutex_);
  std::string out;
  for (auto record = newest.rbegin(); record != newest.rend(); ++record)
    weft::detail::append_to(out, {out.empty() ? "" : ", ", describe(record->signature, record->count), " on ",
                                  record->line < lines_.size() ? std::string_view(lines_[record->line].axis) : "?", " #",
                                  record->sequence, record->end != 0 ? "" : " (not complete)"});
  if (out.empty()) out = "nothing";
  return out;
}

}  // namespace weft::comm
