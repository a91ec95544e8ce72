// SPDX-License-Identifier: Apache-2.0
#pragma once
// The MPI backend: ranks are processes started by mpirun or srun (OpenMPI, MPICH and libraries built on them).
//
//   return weft::run<comm::Threads, comm::Mpi>(argc, argv, f);     // mpirun -np 4 program; without mpirun: threads
//
// The definitions are in mpi_impl.hpp. A program that links weft::compiled_mpi has WEFT_COMPILED_MPI set and takes them from that
// library; the others compile them.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <weft/comm/communicator.hpp>
#include <weft/comm/mpi/library.hpp>
#include <weft/comm/run_result.hpp>

namespace weft::comm {

namespace store {
class Heartbeat;
}

namespace mpi {

/// A communicator over a duplicate of `comm`, for programs that initialise MPI themselves. Collective over `comm`. Ends before
/// MPI_Finalize. Throws UsageError if MPI is not running or if this rank is not in `comm`.
///
/// MPI cannot take an operation back. After an error of weft's, or an exception that left a request incomplete, MPI may still
/// read and write the buffers of such operations in any later call. A program that catches it calls MPI_Abort, or keeps those
/// buffers to its end. weft's own calls throw AbortedError from then on.
Communicator over(MPI_Comm comm, std::chrono::duration<double> deadline = std::chrono::minutes(30), bool fingerprints = true,
                  std::string axis = "world", std::shared_ptr<store::Heartbeat> heartbeat = nullptr);

}  // namespace mpi

/// Ranks are MPI processes.
struct Mpi {
  static constexpr std::string_view name = "mpi";
  /// All operations on all types, in host memory.
  static constexpr bool supports(Operation, DataType, MemoryKind memory) { return memory == MemoryKind::host; }
  /// True if an MPI launcher started this program.
  static bool detected();

  /// The MPI library, from its initialisation to its end.
  class Session {
   public:
    static constexpr bool owns_ranks = false;

    Session(int& argc, char**& argv);
    ~Session();
    int started() const;  ///< ranks started by the launcher
    int here() const;     ///< ranks on this machine

    RunResult run(int, std::chrono::duration<double> deadline, const std::function<void(std::shared_ptr<Group>)>& body);

    /// Makes the lowest failed rank report its error, and ends all processes with its exit code: in good order if all ranks fail
    /// because of their arguments (exit code 2), else by MPI_Abort. A rank with operations under way calls nothing else of MPI.
    int fail(int code, const std::function<void()>& report);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };
};
static_assert(Backend<Mpi>);

}  // namespace weft::comm

#ifndef WEFT_COMPILED_MPI
#include <weft/comm/mpi_impl.hpp>
#endif
