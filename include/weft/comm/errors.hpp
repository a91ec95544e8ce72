// SPDX-License-Identifier: Apache-2.0
#pragma once
// The errors of communication. Each names the rank, the axis (or "world"), the operation and its sequence number on that
// communicator, so that logs of different ranks can be compared line by line.

#include <cstdint>
#include <string>
#include <string_view>

#include <weft/core/error.hpp>

namespace weft {

/// Base of all errors of communication. After one, the communicators of this world carry out no further operation.
class CommunicationError : public Error {
 public:
  WEFT_COLD CommunicationError(int rank, std::string_view axis, std::string_view operation, std::uint64_t sequence,
                               const std::string& what)
      : Error(detail::joined({"rank ", rank, ", axis ", axis, ", ", operation, " #", sequence, ": ", what})),
        rank_(rank),
        axis_(axis),
        operation_(operation),
        sequence_(sequence) {}

  int rank() const noexcept { return rank_; }                           ///< its number in the world
  const std::string& axis() const noexcept { return axis_; }            ///< of the communicator
  const std::string& operation() const noexcept { return operation_; }  ///< as in "all_reduce(sum) of 16 float32"
  std::uint64_t sequence() const noexcept { return sequence_; }         ///< operations that this rank had begun there

 private:
  int rank_;
  std::string axis_, operation_;
  std::uint64_t sequence_;
};

/// A wait that passed its deadline. The text ends with the last operations of every rank that could be seen.
class TimeoutError : public CommunicationError {
  using CommunicationError::CommunicationError;
};

/// Calls of different ranks that do not match; the text names two ranks and both calls. No buffer was changed.
class MismatchError : public CommunicationError {
  using CommunicationError::CommunicationError;
};

/// A wait that could not end because another rank failed (that rank's own error has the reason).
class AbortedError : public CommunicationError {
  using CommunicationError::CommunicationError;
};

}  // namespace weft
