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
  std::uint64_t begin(std::string_view axis, std::uint64_t sequence, std::uint64_t signature, std::size_t count) {
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

  void complete(std::uint64_t number) {
    if (next_.load(std::memory_order_relaxed) - number > capacity) return;
    auto& sequence = entries_[number % capacity].sequence;
    sequence.store(sequence.load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
  }

  /// The number of operations begun so far, on all communicators.
  std::uint64_t begun() const { return next_.load(std::memory_order_acquire); }

  /// The newest `most` operations, newest first: "all_reduce(sum) of 16 float32 on tp #3 (not complete), ...".
  WEFT_COLD std::string text(std::size_t most = capacity) const {
    const std::uint64_t next = begun();
    std::string out;
    for (std::uint64_t k = 0; k < std::min<std::uint64_t>({next, most, capacity}); ++k) {
      const Entry& entry = entries_[(next - 1 - k) % capacity];
      const auto letters = std::bit_cast<std::array<char, 8>>(entry.axis.load(std::memory_order_relaxed));
      const std::uint64_t sequence = entry.sequence.load(std::memory_order_relaxed);
      std::size_t length = 0;
      while (length < letters.size() && letters[length] != '\0') ++length;
      weft::detail::append_to(out, {out.empty() ? "" : ", ",
                      describe(entry.signature.load(std::memory_order_relaxed), entry.count.load(std::memory_order_relaxed)), " on ",
                      std::string_view(letters.data(), length), " #", sequence >> 1, sequence & 1 ? "" : " (not complete)"});
    }
    if (out.empty()) out = "nothing";
    return out;
  }

 private:
  struct Entry {
    std::atomic<std::uint64_t> axis{0}, signature{0}, count{0}, sequence{0};
  };
  std::atomic<std::uint64_t> next_{0};
  std::array<Entry, capacity> entries_;
};

}  // namespace weft::comm
