// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reason why a rank's communication ended, as its errors: NCCL's error, or the wait that exceeded the deadline.

#include <chrono>
#include <cstdint>
#include <string>

#include <weft/comm/nccl/running.hpp>
#include <weft/core/text.hpp>

namespace weft::comm::nccl {

struct Failure {
  bool late = false;
  std::string axis, operation, text;
  std::uint64_t sequence = 0;
  bool interrupted = false;

  /// Throws TimeoutError, InterruptedError or CommunicationError about the operation that failed.
  [[noreturn]] WEFT_COLD void throw_first(int rank) const {
    if (interrupted) throw_error<InterruptedError>({"rank ", rank, ", axis ", axis, ", ", operation, " #", sequence, ": ", text});
    if (late) throw TimeoutError(rank, axis, operation, sequence, text);
    throw CommunicationError(rank, axis, operation, sequence, text);
  }
  /// Throws AbortedError about an operation that came later.
  [[noreturn]] WEFT_COLD void throw_again(int rank, const Running& running) const {
    throw AbortedError(rank, running.axis, describe(running.call), running.sequence,
                       "NCCL's communicators were aborted: " + text);
  }
};

/// NCCL's words about a communicator in this state.
WEFT_COLD inline std::string broken_text(const Running& running, ncclResult_t state) {
  const char* last = ncclGetLastError(running.comm->get());
  return weft::detail::joined(
      {"NCCL failed: ", ncclGetErrorString(state), last == nullptr || *last == '\0' ? "" : ": ", last == nullptr ? "" : last});
}
/// The state that an operation reached within the deadline. `frees`: the rank waits because it gives memory back.
WEFT_COLD inline std::string late_text(const Running& running, std::chrono::duration<double> deadline, bool frees) {
  using enum Running::Stage;
  const char* stage = running.stage == flying     ? "launched, and other ranks did not come"
                      : running.stage == issuing  ? "NCCL connects to other ranks"
                      : running.stage == checking ? "other ranks have not said what they call"
                                                  : "not launched, it waits for the other side or for earlier operations";
  return weft::detail::joined({"waited longer than the deadline of ", std::to_string(deadline.count()), " s (", stage,
                               frees ? ", while this rank gives memory back, for which its GPU must be idle" : "", ")"});
}

}  // namespace weft::comm::nccl
