// SPDX-License-Identifier: Apache-2.0
#pragma once
// A communicator of this rank: two of NCCL's over the same ranks, because NCCL's `blocking` cannot be changed once a communicator
// is made. With 0 no call waits for other ranks, but NCCL starts a thread for every call; with 1 a call puts its kernel on the
// stream and returns at once, unless it is the first that needs a connection: then it waits until the other ranks have made it.
//
// The root does not block. It is made, split and closed by polling, with weft's deadline. Operations go to its child, which
// blocks and shares its resources. A call that may connect runs in a thread of its own, every later one in the caller's. An abort
// of the root ends a call inside the child, for they share one flag: no communicator is freed while a thread is in it.
//
//   comm.connect(size, id, rank);
//   while (comm.state() == ncclInProgress) ...          // with a deadline
//   comm.call(launch);                                  // then state() again
//
// decision 52

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <unordered_set>
#include <utility>

#include <weft/comm/communicator.hpp>
#include <weft/comm/nccl/launch.hpp>

namespace weft::comm::nccl {

/// The process ends it by `retire`, or by `stop` and `bury`; otherwise the destructor aborts it. Not for several threads at once.
class Comm {
 public:
  explicit Comm(int device) : device_(device) {}
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm() {
    stop();
    bury();
  }

  /// Begins to connect; `state` continues it. Collective over the ranks that have this id.
  void connect(int size, const ncclUniqueId& id, int rank) {
    rank_ = rank;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = 1;
    check(ncclCommInitRankConfig(&root_, size, id, rank, &config), "ncclCommInitRankConfig", root_);
  }
  /// NCCL's communicator for operations, once `state` was ncclSuccess.
  ncclComm_t get() const { return operations_; }

  /// ncclInProgress until the communicator is made, or the last call has returned, then ncclSuccess or NCCL's asynchronous error.
  /// Throws the exception of a call that connected. Never waits.
  ncclResult_t state() {
    if (!returned()) return ncclInProgress;
    if (made_) return state_of(operations_);
    if (const ncclResult_t state = state_of(root_); state != ncclSuccess) return state;
    if (!std::exchange(splitting_, true)) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 1;
      check(ncclCommSplit(root_, 0, rank_, &operations_, &config), "ncclCommSplit", root_);
      return ncclInProgress;
    }
    made_ = true;
    return state_of(operations_);
  }

  /// True if the ranks are connected for this call, so that it waits for none of them.
  bool connected(const Launch& launch) const {
    bool all = true;
    launch.for_each_connection([&](std::uint64_t connection) { all = all && connections_.contains(connection); });
    return all;
  }
  /// Gives a call to NCCL. It is on its stream once `state` is ncclSuccess: on return, unless it is the first with one of its
  /// connections. `owner` keeps the objects of `launch` alive.
  void call(const Launch& launch, std::shared_ptr<const void> owner) {
    if (connected(launch)) return launch.run();
    launch.for_each_connection([&](std::uint64_t connection) {
      if (connections_.size() < most_connections) connections_.insert(connection);
    });
    in_thread([launch, owner = std::move(owner)] { launch.run(); });
  }

  /// Begins to close it; true once it is closed. Never waits.
  bool retire() noexcept {
    if (root_ == nullptr) return true;
    try {
      if (!closing_) {
        if (!begin_to_close()) return false;
        closing_ = true;
      }
      if (!returned()) return false;
      operations_ = nullptr;
      return root_closed();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      stop();
      bury();
      return true;
    }
  }

  /// The first half of an abort: kernels end, and so does a call that is inside NCCL. An abort of several communicators of a GPU
  /// is one group of NCCL's for the first halves of all, and then one for the second halves.
  void stop() noexcept {
    if (root_ != nullptr) report(ncclCommAbort(std::exchange(root_, nullptr)), "ncclCommAbort");
    if (!thread_.joinable()) abort_operations();
  }
  /// The second half: nothing of it is left, and no thread.
  void bury() noexcept {
    if (thread_.joinable()) thread_.join();
    if (closing_) operations_ = nullptr;
    abort_operations();
  }

 private:
  /// Numbers that are kept; calls with counts of their own each time, beyond these, always get a thread.
  static constexpr std::size_t most_connections = 4096;

  static ncclResult_t state_of(ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm);
    return state;
  }
  void in_thread(std::function<void()> f) {
    finished_.store(false, std::memory_order_relaxed);
    thread_ = std::thread([this, f = std::move(f)] {
      try {
        cuda_check(cudaSetDevice(device_), "cudaSetDevice");
        f();
      } catch (...) {
        error_ = std::current_exception();
      }
      finished_.store(true, std::memory_order_release);
    });
  }
  /// True if no thread is inside. Throws the exception of the last one.
  bool returned() {
    if (!thread_.joinable()) return true;
    if (!finished_.load(std::memory_order_acquire)) return false;
    thread_.join();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return true;
  }
  /// To close a communicator that blocks may wait for the other ranks of this machine.
  bool begin_to_close() {
    const ncclResult_t now = state();
    if (now == ncclInProgress) return false;
    check(now, "ncclCommGetAsyncError", operations_);
    in_thread([operations = operations_] {
      report(ncclCommFinalize(operations), "ncclCommFinalize");
      report(ncclCommDestroy(operations), "ncclCommDestroy");
    });
    return true;
  }
  bool root_closed() {
    const ncclResult_t now = state_of(root_);
    if (now == ncclInProgress) return false;
    check(now, "ncclCommGetAsyncError", root_);
    if (!std::exchange(finalized_, true)) {
      check(ncclCommFinalize(root_), "ncclCommFinalize", root_);
      return root_closed();
    }
    report(ncclCommDestroy(std::exchange(root_, nullptr)), "ncclCommDestroy");
    return true;
  }
  void abort_operations() noexcept {
    if (operations_ != nullptr) report(ncclCommAbort(std::exchange(operations_, nullptr)), "ncclCommAbort");
  }

  int device_, rank_ = 0;
  ncclComm_t root_ = nullptr, operations_ = nullptr;
  bool splitting_ = false, made_ = false, closing_ = false, finalized_ = false;
  std::unordered_set<std::uint64_t> connections_;  // made by the calls so far
  std::thread thread_;
  std::atomic<bool> finished_{true};
  std::exception_ptr error_;
};

/// An id for `ranks`, from the first of them. Collective. Throws the first rank's error, the same on every rank.
inline ncclUniqueId shared_id(const Communicator& ranks) {
  struct {
    char problem[200] = {};
    ncclUniqueId id = {};
  } first;
  if (ranks.rank() == 0) {
    try {
      check(ncclGetUniqueId(&first.id), "ncclGetUniqueId");
    } catch (const Error& error) {
      words_of(error).copy(first.problem, sizeof first.problem - 1);
    }
  }
  ranks.broadcast(std::span(reinterpret_cast<std::uint8_t*>(&first), sizeof first), 0);
  if (first.problem[0] != '\0') throw_error<Error>({"nccl: rank 0: ", first.problem});
  return first.id;
}

}  // namespace weft::comm::nccl
