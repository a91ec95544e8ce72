// SPDX-License-Identifier: Apache-2.0
#pragma once
// An operation on a communicator from start to end, and the queue of operations that follow each other.

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/group.hpp>
#include <weft/comm/nccl/comm.hpp>

namespace weft::comm::nccl {

using Clock = std::chrono::steady_clock;

/// An operation from start to end.
struct Running {
  enum class Stage { checking, queued, issuing, flying, complete };

  Running(const Call& c, std::string_view a, int r, int n, std::uint64_t s, std::uint64_t k)
      : call(c), axis(a), rank(r), size(n), sequence(s), number(k) {
    counts = keep_counts(call);
    call.order = {};
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    if (check) check->abandon();
  }

  /// Entries of NCCL's queue of work that it may take, of 128 bytes: one operation in several channels, or a message to and from
  /// every rank.
  std::size_t work() const { return comm ? 8 + 2 * std::size_t(size) : 0; }

  Call call;
  std::string axis;
  int rank, size;  ///< in the communicator that carries the operation
  std::uint64_t sequence, number;
  Stage stage = Stage::queued;
  std::shared_ptr<Comm> comm;       ///< null: a group of one
  std::optional<CudaEvent> before;  ///< recorded when its input is ready
  std::optional<CudaEvent> after;   ///< recorded when it is done; only in stage `flying`
  bool on_stream = false;           ///< waits are on this stream, not on the host
  cudaStream_t stream = nullptr;
  const void* own_message = nullptr;  ///< the source of a receive from itself
  Clock::time_point since = {};       ///< time of its launch
  std::unique_ptr<std::size_t[]> counts;
  std::array<std::uint64_t, 3> fingerprint{};
  std::vector<std::uint64_t> fingerprints;  ///< of all ranks
  std::unique_ptr<Pending> check;           ///< the exchange of fingerprints
};

/// Operations that follow each other on one stream.
struct Lane {
  CudaStream stream = CudaStream::of_highest_priority();
  std::deque<std::shared_ptr<Running>> waiting;  ///< not launched yet, in order
  /// The operation that NCCL is launching, or null.
  std::shared_ptr<Running> issuing() const {
    return waiting.empty() || waiting.front()->stage != Running::Stage::issuing ? nullptr : waiting.front();
  }
};

}  // namespace weft::comm::nccl
