// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions of comm/mpi.hpp: one session of the MPI library, the heartbeats of ranks on one machine, and the end of a job.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/flight_file.hpp>
#include <weft/comm/launcher.hpp>
#include <weft/comm/mpi.hpp>
#include <weft/comm/mpi/call_limit.hpp>
#include <weft/comm/mpi/group.hpp>
#include <weft/comm/store/heartbeat.hpp>
#include <weft/core/text.hpp>

namespace weft::comm {

namespace mpi {

/// MPI ends a program that calls it too early, too late or with no communicator, in some libraries without a message.
WEFT_COLD WEFT_MPI_INLINE void require_started(MPI_Comm comm) {
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

WEFT_MPI_INLINE Communicator over(MPI_Comm comm, std::chrono::duration<double> deadline, bool fingerprints, std::string axis,
                                  std::shared_ptr<store::Heartbeat> heartbeat) {
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
WEFT_COLD WEFT_MPI_INLINE Pulse pulse(MPI_Comm comm, int rank, int size) {
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

WEFT_MPI_INLINE bool Mpi::detected() {
  if (std::getenv("TORCHELASTIC_RUN_ID") != nullptr) return false;  // torchrun's own processes, though srun may have started it
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"})
    if (std::getenv(variable) != nullptr) return true;
  return false;
}

struct Mpi::Session::State {
  const double patience_s = runtime::detail::number_from_environment("WEFT_RENDEZVOUS_S", 0.001, 1e6).value_or(120);
  mpi::Handle notices;
  mpi::Pulse pulse;
  bool owner = false;
  int rank = 0, size = 1, here = 1;
};

WEFT_MPI_INLINE Mpi::Session::Session(int& argc, char**& argv) : state_(std::make_unique<State>()) {
  State& state = *state_;
  const detail::BlockingCall inside("MPI_Init_thread and the first communicators of MPI");
  const mpi::CallLimit limit("MPI_Init", state.patience_s);
  int initialized = 0, provided = 0;
  mpi::check(MPI_Initialized(&initialized), "MPI_Initialized");
  state.owner = initialized == 0;
  // Only the rank's own thread calls MPI.
  if (state.owner) mpi::check(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  state.notices = mpi::Handle::duplicate(MPI_COMM_WORLD);
  mpi::check(MPI_Comm_rank(state.notices.get(), &state.rank), "MPI_Comm_rank");
  mpi::check(MPI_Comm_size(state.notices.get(), &state.size), "MPI_Comm_size");
  MPI_Comm node = MPI_COMM_NULL;
  mpi::check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  const mpi::Handle handle(node);
  mpi::check(MPI_Comm_size(node, &state.here), "MPI_Comm_size");
  int together = state.here == state.size ? 1 : 0;  // of all ranks, or of none
  mpi::check(MPI_Allreduce(MPI_IN_PLACE, &together, 1, MPI_INT, MPI_MIN, state.notices.get()), "MPI_Allreduce");
  if (state.size > 1 && together != 0) state.pulse = mpi::pulse(state.notices.get(), state.rank, state.size);
}

WEFT_MPI_INLINE Mpi::Session::~Session() {
  const detail::BlockingCall inside("MPI_Finalize");
  state_->notices = mpi::Handle();
  if (!state_->owner) return;
  const mpi::CallLimit limit("MPI_Finalize", state_->patience_s);
  if (const int code = MPI_Finalize(); code != MPI_SUCCESS)
    std::fprintf(stderr, "weft: MPI_Finalize failed with code %d\n", code);
}

WEFT_MPI_INLINE int Mpi::Session::started() const { return state_->size; }
WEFT_MPI_INLINE int Mpi::Session::here() const { return state_->here; }

WEFT_MPI_INLINE RunResult Mpi::Session::run(int, std::chrono::duration<double> deadline,
                                            const std::function<void(std::shared_ptr<Group>)>& body) {
  try {
    runtime::agree_with_launcher(state_->size);
    auto world = mpi::over(MPI_COMM_WORLD, deadline, runtime::detail::switch_from_environment("WEFT_FINGERPRINTS", true), "world",
                           state_->pulse.heartbeat);
    with_flight_record(state_->rank, [&] {
      body(world.group());
      world.group()->end();  // a rank that is done does not leave while others may fail
    });
    if (state_->pulse.heartbeat) state_->pulse.heartbeat->leave();
  } catch (...) {
    return {std::current_exception(), state_->rank};
  }
  return {};
}

WEFT_MPI_INLINE int Mpi::Session::fail(int code, const std::function<void()>& report) {
  State& state = *state_;
  if (state.pulse.heartbeat) state.pulse.heartbeat->leave();  // a rank with its own error is not lost
  constexpr auto patience = std::chrono::milliseconds(400);
  // Without MPI ranks cannot agree: the lower rank reports sooner and ends the others.
  if (!mpi::leftovers().writes.empty() || !mpi::leftovers().reads.empty()) {
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(state.rank * std::chrono::milliseconds(50), patience));
    report();
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }
  constexpr int usage_code = 2;
  std::vector<MPI_Request> requests;
  std::vector<int> codes(std::size_t(state.size), 0);
  codes[std::size_t(state.rank)] = code;
  for (int q = 0; q < state.size; ++q) {
    if (q == state.rank) continue;
    if (MPI_Isend(&code, 1, MPI_INT, q, 0, state.notices.get(), &requests.emplace_back(MPI_REQUEST_NULL)) != MPI_SUCCESS)
      std::_Exit(code);
  }
  const auto start = std::chrono::steady_clock::now();
  int heard = 0;
  while (heard < state.size - 1 && std::chrono::steady_clock::now() - start < patience) {
    int arrived = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, 0, state.notices.get(), &arrived, &status) != MPI_SUCCESS) break;
    if (arrived != 0) {
      const auto from = std::size_t(status.MPI_SOURCE);
      if (MPI_Recv(&codes[from], 1, MPI_INT, status.MPI_SOURCE, 0, state.notices.get(), MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
      ++heard;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  int first = 0;
  while (codes[std::size_t(first)] == 0) ++first;
  if (first == state.rank) report();
  bool in_order = true;
  for (const int other : codes) in_order = in_order && other == usage_code;
  if (in_order && MPI_Waitall(int(requests.size()), requests.data(), MPI_STATUSES_IGNORE) == MPI_SUCCESS) return code;
  if (first != state.rank) std::this_thread::sleep_for(2 * patience);  // the one that reports ends this process
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace weft::comm
