// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/flight_recorder.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/flight_recorder.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm {

WEFT_INLINE std::uint64_t FlightRecorder::begin(std::string_view axis, std::uint64_t sequence, std::uint64_t signature,
                                                std::size_t count) {
  const std::uint64_t number = next_.load(std::memory_order_relaxed);
  Entry& entry = entries_[number % capacity];
  std::array<char, 8> letters{};
  axis.copy(letters.data(), letters.size());
  entry.axis.store(std::bit_cast<std::uint64_t>(letters), std::memory_order_relaxed);
  entry.signature.store(signature, std::memory_order_relaxed);
  entry.count.store(count, std::memory_order_relaxed);
  entry.sequence.store(sequence << 1, std::memory_order_relaxed);
  next_.store(number + 1, std::memory_order_release);
  return number;
}

WEFT_INLINE void FlightRecorder::complete(std::uint64_t number) {
  if (next_.load(std::memory_order_relaxed) - number > capacity) return;
  auto& sequence = entries_[number % capacity].sequence;
  sequence.store(sequence.load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
}

WEFT_COLD WEFT_INLINE std::string FlightRecorder::text(std::size_t most) const {
  const std::uint64_t next = begun();
  std::string out;
  for (std::uint64_t k = 0; k < std::min<std::uint64_t>({next, most, capacity}); ++k) {
    const Entry& entry = entries_[(next - 1 - k) % capacity];
    const auto letters = std::bit_cast<std::array<char, 8>>(entry.axis.load(std::memory_order_relaxed));
    const std::uint64_t sequence = entry.sequence.load(std::memory_order_relaxed);
    std::size_t length = 0;
    while (length < letters.size() && letters[length] != '\0') ++length;
    weft::detail::append_to(
        out, {out.empty() ? "" : ", ",
              describe(entry.signature.load(std::memory_order_relaxed), entry.count.load(std::memory_order_relaxed)), " on ",
              std::string_view(letters.data(), length), " #", sequence >> 1, sequence & 1 ? "" : " (not complete)"});
  }
  if (out.empty()) out = "nothing";
  return out;
}

}  // namespace weft::comm
