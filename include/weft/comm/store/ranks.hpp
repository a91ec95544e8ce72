// SPDX-License-Identifier: Apache-2.0
#pragma once
// The store backend: ranks are processes that meet at weft's own store and communicate through it. Device backends use it if
// neither MPI nor TCP is available. Started by torchrun, or with torchrun's environment set by hand.

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/comm/launcher.hpp>
#include <weft/comm/run_result.hpp>
#include <weft/comm/store/group.hpp>
#include <weft/comm/store/links.hpp>
#include <weft/comm/store/secret.hpp>

namespace weft::comm {

namespace store {

/// This rank's connection to the store, and the store itself on rank 0.
struct Place {
  std::unique_ptr<Server> server;
  std::shared_ptr<Process> process;
};

/// Connects to the store and waits for the other ranks. Throws StoreError that names the missing ranks.
Place rendezvous(const runtime::Launch& launch, std::chrono::duration<double> patience);

/// The group of all connected ranks.
std::shared_ptr<Group> over(const std::shared_ptr<Process>& process);

}  // namespace store

/// Ranks are processes that share only the store.
struct StoreRanks {
  static constexpr std::string_view name = "store";
  static constexpr bool supports(Operation, DataType, MemoryKind memory) { return memory == MemoryKind::host; }
  /// True if the environment describes a world of processes and the address of rank 0.
  static bool detected() { return runtime::launched_with_addresses(); }

  class Session {
   public:
    static constexpr bool owns_ranks = false;

    Session(int&, char**&)
        : launch_(runtime::launch_from_environment()),
          place_(store::rendezvous(
              launch_, std::chrono::duration<double>(
                           runtime::detail::number_from_environment("WEFT_RENDEZVOUS_S", 0.001, 1e6).value_or(120)))) {}
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    int started() const { return launch_.world; }     ///< ranks started by the launcher
    int here() const { return launch_.local_world; }  ///< ranks on this machine

    RunResult run(int, std::chrono::duration<double> deadline, const std::function<void(std::shared_ptr<Group>)>& body);

    /// Makes one rank report its error: the lowest one that failed by itself, else the lowest one that lost another rank. Returns
    /// the exit code of an error that is a rank's own.
    int fail(int code, const std::function<void()>& report);

   private:
    /// Stores this rank's last word and reads those of the others, for at most the given time; rank 0 also serves until the
    /// others have read.
    std::vector<std::string> leave(const std::string& key, const std::string& word, std::chrono::milliseconds patience);

    runtime::Launch launch_;
    store::Place place_;
    bool primary_ = true;
  };
};
static_assert(Backend<StoreRanks>);

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/store/ranks_impl.hpp>
#endif
