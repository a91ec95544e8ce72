// SPDX-License-Identifier: Apache-2.0
#pragma once
// A ring buffer of a rank's last operations that other threads may read at any time. A wait that passes its deadline prints it,
// so that one sees the position of every rank.
//
//   const auto number = recorder.begin("tp", sequence, signature, count);
//   recorder.complete(number);

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include <weft/comm/operation.hpp>

namespace weft::comm {

/// Written by one rank, read by all. A reader may see a half-replaced entry, so only messages for people may use it.
class FlightRecorder {
 public:
  static constexpr std::size_t capacity = 8;
  enum class Stage : std::uint64_t { begun, complete };

  /// Records the begin of an operation and returns its number, which `complete` takes.
  std::uint64_t begin(std::string_view axis, std::uint64_t sequence, std::uint64_t signature, std::size_t count);

  void complete(std::uint64_t number);

  /// The number of operations begun so far, on all communicators.
  std::uint64_t begun() const { return next_.load(std::memory_order_acquire); }

  /// The newest `most` operations, newest first: "all_reduce(sum) of 16 float32 on tp #3 (not complete), ...".
  std::string text(std::size_t most = capacity) const;

 private:
  struct Entry {
    std::atomic<std::uint64_t> axis{0}, signature{0}, count{0}, sequence{0};
  };
  std::atomic<std::uint64_t> next_{0};
  std::array<Entry, capacity> entries_;
};

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/flight_recorder_impl.hpp>
#endif
