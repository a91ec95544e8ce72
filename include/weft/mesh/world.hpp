// SPDX-License-Identifier: Apache-2.0
#pragma once
// The argument of the function given to `run`: this rank's number among all ranks, and its device.
//
//   return weft::run<comm::Threads>(argc, argv, [](World& world) { train(world.device(), world.communicator()); });

#include <atomic>
#include <csignal>
#include <string_view>
#include <utility>

#include <weft/comm/communicator.hpp>
#include <weft/device/device.hpp>

namespace weft {

namespace runtime::detail {
/// Set by the process's first interrupt (Ctrl-C, SIGTERM).
inline std::atomic<int> interrupt_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch what is lock-free");
}  // namespace runtime::detail

/// One rank's view of the running program. Valid until the function given to `run` returns, in the thread that calls the
/// function.
class World {
 public:
  World(Communicator communicator, DefaultDevice& device) : communicator_(std::move(communicator)), device_(&device) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  const Communicator& communicator() const { return communicator_; }
  DefaultDevice& device() const { return *device_; }
  std::string_view backend() const { return communicator_.backend(); }

  /// True once the process was asked to stop (Ctrl-C, SIGTERM); a second signal kills it. Processes may see it at different
  /// times: agree by an all_reduce before acting on it.
  bool interrupted() const { return runtime::detail::interrupt_signal.load(std::memory_order_relaxed) != 0; }

 private:
  Communicator communicator_;
  DefaultDevice* device_;
};

}  // namespace weft
