// SPDX-License-Identifier: Apache-2.0
#pragma once
// The backend of processes that communicate by TCP (comm/tcp/connection.hpp), started by torchrun or by anything that sets its
// environment.
//
//   return weft::run<comm::Threads, comm::Mpi, comm::Tcp>(argc, argv, f);     // torchrun --no-python --nproc-per-node 4 program

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/comm/flight_file.hpp>
#include <weft/comm/launcher.hpp>
#include <weft/comm/run_result.hpp>
#include <weft/comm/store/links.hpp>
#include <weft/comm/store/secret.hpp>
#include <weft/comm/tcp/group.hpp>
#include <weft/core/text.hpp>

namespace weft::comm {

namespace tcp {

/// Connects to every other rank; their addresses are exchanged in rank 0's store. Throws StoreError that names the missing ranks.
WEFT_COLD inline Met rendezvous(const runtime::Launch& launch, std::chrono::duration<double> patience) {
  const store::Rendezvous where{.host = launch.host,
                                .port = launch.port,
                                .who = {std::uint32_t(launch.rank), std::uint32_t(launch.world), launch.job},
                                .secret = store::secret_of(launch.host, launch.secret),
                                .patience = patience};
  const auto& who = where.who;
  Met met;
  if (launch.rank == 0) met.server = std::make_unique<store::Server>(launch.host, launch.port, who, where.secret);
  try {
    store::Client client(launch.host, launch.port, who, where.secret, where.deadline, true);
    met.heartbeat = store::start_heartbeat(client, where);
    met.mesh = std::make_shared<Mesh>(launch.rank, store::link_all(client, where));
    client.met(where.deadline);
    return met;
  } catch (const StoreError& error) {
    if (met.server) met.server->end_rendezvous(store::unnamed(who, error));
    throw store::named(who, error);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw StoreError(weft::detail::joined({"rank ", launch.rank, ": it cannot connect: ", error.what()}));
  }
}

/// The communicator of all ranks of `process`, which must all be connected.
inline Communicator over(const std::shared_ptr<Process>& process) {
  std::vector<int> members(std::size_t(process->mesh->size()));
  std::iota(members.begin(), members.end(), 0);
  return Communicator(TcpGroup::over(process, 0, std::move(members), "world"));
}

}  // namespace tcp

/// Ranks are processes connected by TCP.
struct Tcp {
  static constexpr std::string_view name = "tcp";
  /// All operations on all types, in host memory.
  static constexpr bool supports(Operation, DataType, MemoryKind memory) { return memory == MemoryKind::host; }
  /// True if the environment describes a world of processes and the address of rank 0.
  static bool detected() { return runtime::launched_with_addresses(); }

  /// The connections, from start to end of the program.
  class Session {
   public:
    static constexpr bool owns_ranks = false;

    Session(int&, char**&) : launch_(runtime::launch_from_environment()) {
      const double patience = runtime::detail::number_from_environment("WEFT_RENDEZVOUS_S", 0.001, 1e6).value_or(120);
      const bool check = runtime::detail::switch_from_environment("WEFT_FINGERPRINTS", false);
      process_ = std::make_shared<tcp::Process>(tcp::rendezvous(launch_, std::chrono::duration<double>(patience)),
                                                std::chrono::minutes(30), check);
      process_->listen();
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    int started() const { return launch_.world; }     ///< ranks started by the launcher
    int here() const { return launch_.local_world; }  ///< ranks on this machine
    const std::shared_ptr<tcp::Process>& process() const { return process_; }

    RunResult run(int, std::chrono::duration<double> deadline, const std::function<void(std::shared_ptr<Group>)>& body) {
      process_->deadline = deadline;
      try {
        const Communicator world = tcp::over(process_);
        with_flight_record(launch_.rank, [&] {
          body(world.group());
          world.group()->end();  // a rank that is done does not leave while others may fail
        });
        process_->tell(0, false, std::chrono::seconds(2));
      } catch (const AbortedError&) {
        primary_ = process_->found_invalid_frame();
        return {std::current_exception(), launch_.rank};
      } catch (...) {
        return {std::current_exception(), launch_.rank};
      }
      return {};
    }

    /// Makes one rank report its error: the lowest one that failed by itself, else the lowest one that lost another rank. Returns
    /// the exit code of an error that is a rank's own.
    int fail(int code, const std::function<void()>& report) {
      process_->tell(code, primary_, std::chrono::milliseconds(400));
      bool mine = true;
      int result = primary_ ? code : 0;
      for (int q = 0; q < launch_.world; ++q) {
        const auto& word = process_->words()[std::size_t(q)];
        if (q == launch_.rank || !word.heard || word.code == 0) continue;
        if (result == 0 && word.primary != 0) result = int(word.code);
        if (bool(word.primary) != primary_ ? bool(word.primary) : q < launch_.rank) mine = false;
      }
      if (mine) report();
      return result == 0 ? code : result;
    }

   private:
    runtime::Launch launch_;
    std::shared_ptr<tcp::Process> process_;
    bool primary_ = true;
  };
};
static_assert(Backend<Tcp>);

}  // namespace weft::comm
