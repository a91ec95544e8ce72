// SPDX-License-Identifier: Apache-2.0
#pragma once
// The MPI backend: ranks are processes started by mpirun or srun (OpenMPI, MPICH and libraries built on them).
//
//   return weft::run<comm::Threads, comm::Mpi>(argc, argv, f);     // mpirun -np 4 program; without mpirun: threads

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/comm/flight_file.hpp>
#include <weft/comm/launcher.hpp>
#include <weft/comm/mpi/call_limit.hpp>
#include <weft/comm/mpi/group.hpp>
#include <weft/comm/run_result.hpp>
#include <weft/comm/store/heartbeat.hpp>
#include <weft/core/text.hpp>

namespace weft::comm {

namespace mpi {

/// MPI ends a program that calls it too early, too late or with no communicator, in some libraries without a message.
WEFT_COLD inline void require_started(MPI_Comm comm) {
  int started = 0, ended = 0;
  check(MPI_Initialized(&started), "MPI_Initialized");
  check(MPI_Finalized(&ended), "MPI_Finalized");
  if (started == 0 || ended != 0)
    throw_error<UsageError>({"mpi::over: MPI ", ended != 0 ? "has ended" : "is not running yet",
                             ": it is called between the program's MPI_Init and MPI_Finalize"});
  if (comm == MPI_COMM_NULL)
    throw_error<UsageError>({"mpi::over: the communicator is MPI_COMM_NULL: this rank is not one of the group ",
                             "(a colour of MPI_UNDEFINED in MPI_Comm_split), and does not call it"});
}

/// A communicator over a duplicate of `comm`, for programs that initialise MPI themselves. Collective over `comm`. Ends before
/// MPI_Finalize. Throws UsageError if MPI is not running or if this rank is not in `comm`.
///
/// MPI cannot take an operation back. After an error of weft's, or an exception that left a request incomplete, MPI may still
/// read and write the buffers of such operations in any later call. A program that catches it calls MPI_Abort, or keeps those
/// buffers to its end. weft's own calls throw AbortedError from then on.
inline Communicator over(MPI_Comm comm, std::chrono::duration<double> deadline = std::chrono::minutes(30),
                         bool fingerprints = true, std::string axis = "world",
                         std::shared_ptr<store::Heartbeat> heartbeat = nullptr) {
  require_started(comm);
  const comm::detail::BlockingCall inside("MPI_Comm_dup for axis " + axis);
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  if (size == 1) return Communicator(std::make_shared<SelfGroup>(std::move(axis), "mpi"));
  auto process = std::make_shared<Process>(comm, deadline, fingerprints, std::move(heartbeat));
  return Communicator(MpiGroup::over(std::move(process), Handle::duplicate(comm), std::move(axis))->sharing_memory());
}

/// The detection of lost ranks on one machine.
struct Pulse {
  std::unique_ptr<store::Server> server;  ///< on rank 0
  std::shared_ptr<store::Heartbeat> heartbeat;
};

/// A store on this machine's loopback address at rank 0, with a secret that travels through MPI, and a heartbeat for each rank:
/// MPI itself does not report a stopped process. Collective. Empty if the ranks are on several machines, or if rank 0 cannot
/// serve.
WEFT_COLD inline Pulse pulse(MPI_Comm comm, int rank, int size) {
  Pulse pulse;
  struct {
    std::int32_t port = 0;
    char secret[32] = {};
  } place;
  const store::Identity who{std::uint32_t(rank), std::uint32_t(size), "mpi"};
  const auto secret = [&] { return std::string(place.secret, sizeof place.secret); };
  if (rank == 0) {
    try {
      for (std::size_t k = 0; k < sizeof place.secret; k += sizeof(store::Nonce)) {
        const store::Nonce nonce = store::random_nonce();
        std::copy(nonce.begin(), nonce.end(), place.secret + k);
      }
      pulse.server = std::make_unique<store::Server>("127.0.0.1", 0, who, secret());
      place.port = pulse.server->port();
    } catch (const StoreError&) {
      place.port = 0;
    }
  }
  check(MPI_Bcast(&place, int(sizeof place), MPI_BYTE, 0, comm), "MPI_Bcast");
  if (place.port != 0)
    pulse.heartbeat =
        std::make_shared<store::Heartbeat>("127.0.0.1", place.port, who, secret(), store::Clock::now() + std::chrono::minutes(1));
  return pulse;
}

}  // namespace mpi

/// Ranks are MPI processes.
struct Mpi {
  static constexpr std::string_view name = "mpi";
  /// All operations on all types, in host memory.
  static constexpr bool supports(Operation, DataType, MemoryKind memory) { return memory == MemoryKind::host; }
  /// True if an MPI launcher started this program.
  static bool detected() {
    if (std::getenv("TORCHELASTIC_RUN_ID") != nullptr) return false;  // torchrun's own processes, though srun may have started it
    for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"})
      if (std::getenv(variable) != nullptr) return true;
    return false;
  }

  /// The MPI library, from its initialisation to its end.
  class Session {
   public:
    static constexpr bool owns_ranks = false;

    Session(int& argc, char**& argv) {
      const detail::BlockingCall inside("MPI_Init_thread and the first communicators of MPI");
      const mpi::CallLimit limit("MPI_Init", patience_s_);
      int initialized = 0, provided = 0;
      mpi::check(MPI_Initialized(&initialized), "MPI_Initialized");
      owner_ = initialized == 0;
      // Only the rank's own thread calls MPI.
      if (owner_) mpi::check(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
      notices_ = mpi::Handle::duplicate(MPI_COMM_WORLD);
      mpi::check(MPI_Comm_rank(notices_.get(), &rank_), "MPI_Comm_rank");
      mpi::check(MPI_Comm_size(notices_.get(), &size_), "MPI_Comm_size");
      MPI_Comm node = MPI_COMM_NULL;
      mpi::check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
      const mpi::Handle handle(node);
      mpi::check(MPI_Comm_size(node, &here_), "MPI_Comm_size");
      int together = here_ == size_ ? 1 : 0;  // of all ranks, or of none
      mpi::check(MPI_Allreduce(MPI_IN_PLACE, &together, 1, MPI_INT, MPI_MIN, notices_.get()), "MPI_Allreduce");
      if (size_ > 1 && together != 0) pulse_ = mpi::pulse(notices_.get(), rank_, size_);
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    ~Session() {
      const detail::BlockingCall inside("MPI_Finalize");
      notices_ = mpi::Handle();
      if (!owner_) return;
      const mpi::CallLimit limit("MPI_Finalize", patience_s_);
      if (const int code = MPI_Finalize(); code != MPI_SUCCESS)
        std::fprintf(stderr, "weft: MPI_Finalize failed with code %d\n", code);
    }

    int started() const { return size_; }  ///< ranks started by the launcher
    int here() const { return here_; }     ///< ranks on this machine

    RunResult run(int, std::chrono::duration<double> deadline, const std::function<void(std::shared_ptr<Group>)>& body) {
      try {
        runtime::agree_with_launcher(size_);
        auto world = mpi::over(MPI_COMM_WORLD, deadline, runtime::detail::switch_from_environment("WEFT_FINGERPRINTS", true),
                               "world", pulse_.heartbeat);
        with_flight_record(rank_, [&] {
          body(world.group());
          world.group()->end();  // a rank that is done does not leave while others may fail
        });
        if (pulse_.heartbeat) pulse_.heartbeat->leave();
      } catch (...) {
        return {std::current_exception(), rank_};
      }
      return {};
    }

    /// Makes the lowest failed rank report its error, and ends all processes with its exit code: in good order if all ranks fail
    /// because of their arguments (exit code 2), else by MPI_Abort. A rank with operations under way calls nothing else of MPI.
    int fail(int code, const std::function<void()>& report);

   private:
    const double patience_s_ = runtime::detail::number_from_environment("WEFT_RENDEZVOUS_S", 0.001, 1e6).value_or(120);
    mpi::Handle notices_;
    mpi::Pulse pulse_;
    bool owner_ = false;
    int rank_ = 0, size_ = 1, here_ = 1;
  };
};
static_assert(Backend<Mpi>);

inline int Mpi::Session::fail(int code, const std::function<void()>& report) {
  if (pulse_.heartbeat) pulse_.heartbeat->leave();  // a rank with its own error is not lost
  constexpr auto patience = std::chrono::milliseconds(400);
  if (!mpi::leftovers().writes.empty() ||
      !mpi::leftovers().reads.empty()) {  // without MPI ranks cannot agree: the lower rank reports sooner and ends the others
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(rank_ * std::chrono::milliseconds(50), patience));
    report();
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }
  constexpr int usage_code = 2;
  std::vector<MPI_Request> requests;
  std::vector<int> codes(std::size_t(size_), 0);
  codes[std::size_t(rank_)] = code;
  for (int q = 0; q < size_; ++q) {
    if (q == rank_) continue;
    if (MPI_Isend(&code, 1, MPI_INT, q, 0, notices_.get(), &requests.emplace_back(MPI_REQUEST_NULL)) != MPI_SUCCESS)
      std::_Exit(code);
  }
  const auto start = std::chrono::steady_clock::now();
  int heard = 0;
  while (heard < size_ - 1 && std::chrono::steady_clock::now() - start < patience) {
    int arrived = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, 0, notices_.get(), &arrived, &status) != MPI_SUCCESS) break;
    if (arrived != 0) {
      const auto from = std::size_t(status.MPI_SOURCE);
      if (MPI_Recv(&codes[from], 1, MPI_INT, status.MPI_SOURCE, 0, notices_.get(), MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
      ++heard;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  int first = 0;
  while (codes[std::size_t(first)] == 0) ++first;
  if (first == rank_) report();
  bool in_order = true;
  for (const int other : codes) in_order = in_order && other == usage_code;
  if (in_order && MPI_Waitall(int(requests.size()), requests.data(), MPI_STATUSES_IGNORE) == MPI_SUCCESS) return code;
  if (first != rank_) std::this_thread::sleep_for(2 * patience);  // the one that reports ends this process
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace weft::comm
