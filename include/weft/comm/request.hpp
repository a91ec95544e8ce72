// SPDX-License-Identifier: Apache-2.0
#pragma once
// The handle of an operation that was started and is not complete.
//
//   Request request = communicator.all_reduce_async(gradients);
//   ...                                     // other work; request.test() now and then lets the operation advance
//   request.wait();                         // only now may `gradients` be read, written or freed

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <weft/comm/rank_times.hpp>
#include <weft/core/text.hpp>
#include <weft/device/region.hpp>

namespace weft {

namespace comm {

namespace detail {
/// Marks the end of an observed call for tools.
WEFT_COLD inline void mark_done(std::uint64_t call) { Kokkos::Profiling::markEvent("weft done " + std::to_string(call)); }
}  // namespace detail

/// A backend's handle of a started operation.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Advances the operation as far as possible without waiting; true once it is complete.
  virtual bool test() = 0;
  /// Advances the operation until it is complete.
  virtual void wait() = 0;
  /// Called when the handle is destroyed before the operation is complete. Waits; during an exception it ends the world's
  /// communication instead, so that no rank touches the buffers any more.
  virtual void abandon() noexcept = 0;
};

}  // namespace comm

/// A started operation. Progress is cooperative: it is made by `test` and `wait` of any request of this rank and by the rank's
/// blocking operations, in the thread that calls them, which must be the rank's thread.
class [[nodiscard]] Request {
 public:
  Request() = default;  ///< a complete operation
  /// `times`: of the operation's communicator, as long as it is pending.
  explicit Request(std::unique_ptr<comm::Pending> pending, const comm::TimesPlace& times = {})
      : pending_(std::move(pending)), times_(times) {}
  Request(Request&& other) noexcept = default;
  // void, because nvcc takes a returned reference to a [[nodiscard]] class for one more discarded request.
  WEFT_OUT_OF_LINE void operator=(Request&& other) noexcept {
    if (this == &other) return;
    if (pending_) pending_->abandon();
    pending_ = std::move(other.pending_);
    times_ = other.times_;
  }
  WEFT_OUT_OF_LINE ~Request() {
    if (pending_) pending_->abandon();
  }

  /// True once the operation is complete. Throws the operation's error.
  bool test() {
    if (pending_ && pending_->test()) end();
    return pending_ == nullptr;
  }
  void wait() {
    if (!pending_) return;
    const trace::Region region([] { return std::string("wait"); });
    {
      const comm::Waiting waiting(times_);
      pending_->wait();
    }
    end();
  }
  bool complete() const { return pending_ == nullptr; }

 private:
  void end() {
    pending_.reset();
    if (times_.observed != 0) [[unlikely]]
      comm::detail::mark_done(times_.observed);
  }

  std::unique_ptr<comm::Pending> pending_;
  comm::TimesPlace times_;
};

}  // namespace weft
