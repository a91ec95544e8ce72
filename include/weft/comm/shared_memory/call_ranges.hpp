// SPDX-License-Identifier: Apache-2.0
#pragma once
// The bytes of a rank's buffers that go to another rank in a collective, or come from it.

#include <cstddef>
#include <span>

#include <weft/comm/operation.hpp>

namespace weft::comm::shared_memory {

class CallRanges {
 public:
  struct Range {
    std::size_t begin, length;  // in bytes
  };
  CallRanges(const Call& call, int rank) : call_(call), rank_(rank) {}

  /// Whether each rank gets another part of the others' inputs.
  bool to_each() const {
    using enum Operation;
    const auto op = call_.operation;
    return op == reduce_scatter || op == reduce_scatter_v || op == scatter || op == all_to_all || op == all_to_all_v;
  }
  /// The bytes of this rank's input that all others get.
  std::size_t own_bytes() const {
    return call_.operation == Operation::all_gather_v ? call_.receive_counts[std::size_t(rank_)] * element() : call_.bytes();
  }
  /// The part of this rank's input that goes to rank q.
  Range sent(int q) const {
    using enum Operation;
    if (call_.operation == all_to_all_v) return of_counts(call_.send_counts, q);
    if (call_.operation == reduce_scatter_v) return of_counts(call_.receive_counts, q);
    return to_each() ? Range{std::size_t(q) * call_.bytes(), call_.bytes()} : Range{0, own_bytes()};
  }
  /// The part of this rank's output that comes from rank q.
  Range received(int q) const {
    using enum Operation;
    if (call_.operation == all_to_all_v || call_.operation == all_gather_v) return of_counts(call_.receive_counts, q);
    return {call_.operation == scatter ? 0 : std::size_t(q) * call_.bytes(), call_.bytes()};
  }

 private:
  std::size_t element() const { return size_of(call_.type); }
  Range of_counts(std::span<const std::size_t> counts, int q) const {
    std::size_t before = 0;
    for (int r = 0; r < q; ++r) before += counts[std::size_t(r)];
    return {before * element(), counts[std::size_t(q)] * element()};
  }

  const Call& call_;
  int rank_;
};

}  // namespace weft::comm::shared_memory
