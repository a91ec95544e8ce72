// SPDX-License-Identifier: Apache-2.0
#pragma once
// The argument of the function given to `run`: this rank's number among all ranks, and its device. A program that starts its
// ranks and Kokkos itself makes one from a communicator.
//
//   return weft::run<comm::Threads>(argc, argv, [](World& world) { train(world.device(), world.communicator()); });
//   World world(comm::mpi::over(communicator_of_the_program));

#include <atomic>
#include <csignal>
#include <memory>
#include <string_view>
#include <utility>

#include <Kokkos_Core.hpp>

#include <weft/comm/communicator.hpp>
#include <weft/core/error.hpp>
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
  /// The ranks of a communicator that the program made itself (comm::mpi::over), on a device of their own: Kokkos' default
  /// instance. Ends before Kokkos and MPI do. Throws UsageError if Kokkos is not running, or runs on GPUs: there `run` makes the
  /// World, also in a program that has started MPI and Kokkos.
  explicit World(Communicator communicator)
      : communicator_(std::move(communicator)), owned_(own_device()), device_(owned_.get()) {}
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
  WEFT_COLD static std::unique_ptr<DefaultDevice> own_device() {
    if (!Kokkos::is_initialized() || Kokkos::is_finalized())
      throw UsageError(
          "World: Kokkos is not running: a program that makes a World itself has a Kokkos::ScopeGuard, which outlives it");
    if constexpr (!Kokkos::SpaceAccessibility<Kokkos::HostSpace, DefaultDevice::memory_space>::accessible)
      throw UsageError(
          "World: made of a communicator alone it is for the host, and this Kokkos computes on GPUs: "
          "run<comm::NcclOver<comm::Mpi>>(argc, argv, f) takes the MPI and the Kokkos that the program has started");
    return std::make_unique<DefaultDevice>();
  }

  Communicator communicator_;
  std::unique_ptr<DefaultDevice> owned_ = nullptr;
  DefaultDevice* device_;
};

}  // namespace weft
