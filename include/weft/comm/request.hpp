// SPDX-License-Identifier: Apache-2.0
#pragma once
// The handle of an operation that has been started but not finished.
//
//   Request request = communicator.all_reduce_async(gradients);
//   ...                                     // other work; request.test() now and then lets the operation advance
//   request.wait();                         // only now may `gradients` be read, written or freed

#include <memory>
#include <utility>

#include <weft/core/text.hpp>

namespace weft {

namespace comm {

/// What a backend gives back for a started operation.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Advances the operation as far as it goes without waiting; true once it is complete.
  virtual bool test() = 0;
  /// Advances it until it is complete.
  virtual void wait() = 0;
  /// Called when the handle goes away before the operation is complete: waits, or ends the world's communication when an
  /// exception is on its way, so that no rank touches the buffers any more.
  virtual void abandon() noexcept = 0;
};

}  // namespace comm

/// A started operation. Progress is cooperative: it is made by `test` and `wait` of any request of this rank and by its
/// blocking operations, in the thread that calls them, which must be the thread of the rank.
class [[nodiscard]] Request {
 public:
  Request() = default;  ///< complete
  explicit Request(std::unique_ptr<comm::Pending> pending) : pending_(std::move(pending)) {}
  Request(Request&& other) noexcept = default;
  // Nothing comes back: nvcc takes a reference to a [[nodiscard]] class for one more request that is let go.
  WEFT_OUT_OF_LINE void operator=(Request&& other) noexcept {
    if (this == &other) return;
    if (pending_) pending_->abandon();
    pending_ = std::move(other.pending_);
  }
  WEFT_OUT_OF_LINE ~Request() {
    if (pending_) pending_->abandon();
  }

  /// True once the operation is complete. Throws what the operation would throw.
  bool test() {
    if (pending_ && pending_->test()) pending_.reset();
    return pending_ == nullptr;
  }
  void wait() {
    if (!pending_) return;
    pending_->wait();
    pending_.reset();
  }
  bool complete() const { return pending_ == nullptr; }

 private:
  std::unique_ptr<comm::Pending> pending_;
};

}  // namespace weft
