// SPDX-License-Identifier: Apache-2.0
#pragma once
// The store backend: ranks are processes that meet at weft's own store and communicate through it. Device backends use it if
// neither MPI nor Gloo is available. Started by torchrun, or with torchrun's environment set by hand.

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
#include <weft/comm/run_result.hpp>
#include <weft/comm/store/group.hpp>
#include <weft/comm/launcher.hpp>

namespace weft::comm {

namespace store {

/// This rank's connection to the store, and the store itself on rank 0.
struct Place {
  std::unique_ptr<Server> server;
  std::shared_ptr<Process> process;
};

/// Connects to the store and waits for the other ranks. Throws StoreError that names the missing ranks.
WEFT_COLD inline Place rendezvous(const runtime::Launch& launch, std::chrono::duration<double> patience) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
  const Identity who{std::uint32_t(launch.rank), std::uint32_t(launch.world), launch.job};
  Place place;
  if (launch.rank == 0) place.server = std::make_unique<Server>(launch.host, launch.port, who, launch.secret);
  place.process = std::make_shared<Process>(Client(launch.host, launch.port, who, launch.secret, deadline), who, std::chrono::minutes(30));
  Client& client = place.process->client;
  client.set("here/" + std::to_string(launch.rank), "", deadline);
  for (int q = 0; q < launch.world; ++q) {
    if (client.get("here/" + std::to_string(q), deadline)) continue;
    std::string missing;
    const auto soon = Clock::now() + std::chrono::seconds(2);
    for (int r = q; r < launch.world; ++r)
      if (!client.has("here/" + std::to_string(r), soon)) weft::detail::append_to(missing, {missing.empty() ? "" : ", ", r});
    throw_error<StoreError>({"rank ", launch.rank, ": rank ", missing.empty() ? std::to_string(q) : missing, " of a world of ",
                             launch.world, " did not come to ", launch.host, ":", launch.port, " within ", long(patience.count()),
                             " s (WEFT_RENDEZVOUS_S)"});
  }
  return place;
}

/// The group of all connected ranks.
inline std::shared_ptr<Group> over(const std::shared_ptr<Process>& process) {
  if (process->who.world == 1) return std::make_shared<SelfGroup>("world", "store");
  std::vector<int> members(process->who.world);
  std::iota(members.begin(), members.end(), 0);
  return std::make_shared<StoreGroup>(process, 0, std::move(members), "world");
}

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
          place_(store::rendezvous(launch_, std::chrono::duration<double>(
                                          runtime::detail::number_from_environment("WEFT_RENDEZVOUS_S", 0.001, 1e6).value_or(120)))) {}
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    int started() const { return launch_.world; }     ///< ranks started by the launcher
    int here() const { return launch_.local_world; }  ///< ranks on this machine

    RunResult run(int, std::chrono::duration<double> deadline, const std::function<void(std::shared_ptr<Group>)>& body) {
      place_.process->deadline = deadline;
      try {
        const Communicator world(store::over(place_.process));
        body(world.group());
        world.barrier();  // a rank that is done does not leave while others may fail
        leave("bye/", "", std::chrono::seconds(5));
      } catch (const AbortedError&) {
        primary_ = false;
        return {std::current_exception(), launch_.rank};
      } catch (...) {
        return {std::current_exception(), launch_.rank};
      }
      return {};
    }

    /// Makes one rank report its error: the lowest one that failed by itself, else the lowest one that lost another rank. Returns
    /// the exit code of an error that is a rank's own.
    int fail(int code, const std::function<void()>& report) {
      bool mine = true;
      int result = primary_ ? code : 0;
      try {
        auto& client = place_.process->client;
        if (primary_) client.set("failed", weft::detail::joined({"rank ", launch_.rank, " failed with exit code ", code}), place_.process->soon());
        const auto ends = leave("end/", weft::detail::joined({code, primary_ ? "p" : "s"}), std::chrono::milliseconds(600));
        for (int q = 0; q < launch_.world; ++q) {
          const std::string& end = ends[std::size_t(q)];
          if (q == launch_.rank || end.empty()) continue;
          const bool primary = end.back() == 'p';
          if (result == 0 && primary) result = std::atoi(end.c_str());
          if (primary != primary_ ? primary : q < launch_.rank) mine = false;
        }
      } catch (const Error&) {  // the store is gone with rank 0
      }
      if (mine) report();
      return result == 0 ? code : result;
    }

   private:
    /// Stores this rank's last word and reads those of the others, for at most the given time; rank 0 also serves until the
    /// others have read.
    std::vector<std::string> leave(const std::string& key, const std::string& word, std::chrono::milliseconds patience) {
      auto& client = place_.process->client;
      const auto end = store::Clock::now() + patience;
      client.set(key + std::to_string(launch_.rank), word, end);
      std::vector<std::string> words(std::size_t(launch_.world));
      for (int q = 0; q < launch_.world; ++q)
        if (const auto found = client.get(key + std::to_string(q), end)) words[std::size_t(q)] = *found;
      client.set("heard/" + std::to_string(launch_.rank), "", store::Clock::now() + patience);
      if (launch_.rank == 0)
        for (int q = 1; q < launch_.world; ++q)
          if (!words[std::size_t(q)].empty() || key == "bye/") (void)client.get("heard/" + std::to_string(q), end + patience);
      return words;
    }

    runtime::Launch launch_;
    store::Place place_;
    bool primary_ = true;
  };
};
static_assert(Backend<StoreRanks>);

}  // namespace weft::comm
