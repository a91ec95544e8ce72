// SPDX-License-Identifier: Apache-2.0
#pragma once
// The argument of the function passed to `run`: this rank's number among all ranks, and its device. A program that starts its
// ranks and Kokkos itself creates a World from a communicator.
//
//   return weft::run<comm::Threads>(argc, argv, [](World& world) { train(world.device(), world.communicator()); });
//   World world(comm::mpi::over(communicator_of_the_program));

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <Kokkos_Core.hpp>

#include <weft/comm/communicator.hpp>
#include <weft/comm/stop.hpp>
#include <weft/core/error.hpp>
#include <weft/device/device.hpp>

namespace weft {

/// One rank's view of the running program. Valid until the function passed to `run` returns, in the thread that calls the
/// function.
class World {
 public:
  World(Communicator communicator, DefaultDevice& device) : communicator_(std::move(communicator)), device_(&device) {
    share_tensors();
  }
  /// The ranks of a communicator that the program created (comm::mpi::over), on a separate device: Kokkos' default instance. It
  /// must end before Kokkos and MPI do. Throws UsageError if Kokkos is not running, or runs on GPUs: there `run` creates the
  /// World, also in a program that has started MPI and Kokkos. Also throws UsageError if WEFT_REHEARSE is set, which only `run`
  /// can obey. A World of one process, Communicator(), is always allowed, since it is no run of several ranks.
  explicit World(Communicator communicator)
      : communicator_(std::move(communicator)), owned_(own_device(communicator_)), device_(owned_.get()) {
    share_tensors();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  const Communicator& communicator() const { return communicator_; }
  DefaultDevice& device() const { return *device_; }
  std::string_view backend() const { return communicator_.backend(); }

  /// True once the process has received a stop request (Ctrl-C, SIGTERM); a second signal kills it. Processes may see the request
  /// at different times; stop_requested() is the same on all. After the first call, each wait has 10 s (WEFT_STOP_S) to end by
  /// itself. A program that never calls it is ended within 1 s, with exit code 130.
  bool interrupted() const {
    comm::detail::stop_state.heeded.store(true, std::memory_order_relaxed);
    return comm::stop_signal() != 0;
  }
  /// The same on every rank: true as soon as one of them has received a stop request. Collective; call it at the end of a step,
  /// before all ranks save a checkpoint or a report. The program then returns InterruptedError::code, 130.
  bool stop_requested() const {
    std::int32_t asked[] = {interrupted() ? 1 : 0};
    communicator_.all_reduce(std::span(asked), Reduction::max);
    return asked[0] != 0;
  }

 private:
  WEFT_COLD static std::unique_ptr<DefaultDevice> own_device(const Communicator& ranks) {
    if (const char* const wanted = std::getenv("WEFT_REHEARSE");
        wanted != nullptr && *wanted != '\0' && ranks.backend() != "self")
      throw UsageError(
          "World: WEFT_REHEARSE is set, and a World that a program makes itself is a real one: "
          "if (std::getenv(\"WEFT_REHEARSE\")) weft::run(argc, argv, f), in its place, rehearses f(world); or unset the "
          "variable");
    if (!Kokkos::is_initialized() || Kokkos::is_finalized())
      throw UsageError(
          "World: Kokkos is not running: a program that makes a World itself has a Kokkos::ScopeGuard, which outlives it");
    if constexpr (!Kokkos::SpaceAccessibility<Kokkos::HostSpace, DefaultDevice::memory_space>::accessible)
      throw UsageError(
          "World: made of a communicator alone it is for the host, and this Kokkos computes on GPUs: "
          "run<comm::NcclOver<comm::Mpi>>(argc, argv, f) takes the MPI and the Kokkos that the program has started");
    return std::make_unique<DefaultDevice>();
  }

  /// Tensors lie where the other processes of this machine can read them.
  void share_tensors() {
    if constexpr (std::is_same_v<DefaultDevice::memory_space, Kokkos::HostSpace>)
      if (const auto* const blocks = communicator_.group()->shared_blocks()) device_->arena().take_from(*blocks);
  }

  Communicator communicator_;
  std::unique_ptr<DefaultDevice> owned_ = nullptr;
  DefaultDevice* device_;
};

}  // namespace weft
