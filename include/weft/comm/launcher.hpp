// SPDX-License-Identifier: Apache-2.0
#pragma once
// The description of a job by its launcher: the environment variables that torchrun, mpirun and srun give to the processes that
// they start. torchrun's variables take precedence: a user may have set them on purpose, and srun may have started torchrun.
//
//   if (launched_with_addresses()) connect(launch_from_environment());

#include <cstdlib>
#include <string>
#include <string_view>

#include <weft/comm/run_options.hpp>

namespace weft::runtime {

/// One process of a launched job.
struct Launch {
  int rank = 0, world = 1;
  int local_world = 1;  ///< processes on this machine
  std::string host;     ///< address of rank 0, MASTER_ADDR
  int port = 0;         ///< port of weft's store on that host
  std::string job;      ///< its name, the same on all ranks and another for every job
  std::string secret;   ///< empty: loopback only
};

namespace detail {

inline constexpr int most_processes = 1 << 16;

inline bool is_set(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0';
}

int whole_number(const char* name, int least, int most);

struct Names {
  const char *rank, *world, *local;
};
inline constexpr Names torch_names{"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
inline constexpr Names other_names[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                        {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
                                        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"}};

/// Throws UsageError for invalid variables of weft's, also if no launcher uses them.
void require_launch_variables();

/// A launcher's variables for the number of started processes and for that of a process, its name, and the requirement for a
/// program that takes part. The innermost launcher comes first: mpirun's daemons may be srun's tasks.
struct Starter {
  const char *size, *rank, *name, *need;
};
inline constexpr Starter starters[] = {
    {"WORLD_SIZE", "RANK", "torchrun", "comm::Tcp among the program's backends"},
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun", "comm::Mpi among the program's backends"},
    {"PMI_SIZE", "PMI_RANK", "MPI's launcher", "comm::Mpi among the program's backends"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun",
     "srun --mpi=pmix for comm::Mpi, or MASTER_ADDR and MASTER_PORT for comm::Tcp"}};

}  // namespace detail

/// Throws UsageError if MPI connects another number of processes than the launcher started. For example, every process is alone
/// in its MPI_COMM_WORLD, and would train alone, if the launcher belongs to another MPI library.
void agree_with_launcher(int connected);

/// Throws UsageError if a launcher started several processes and no backend of the program connects them.
void refuse_unconnected(std::string_view backend);

/// True with WEFT_IGNORE_LAUNCHER=1: each process that a launcher started is a program of its own, as in a sweep of parameters.
inline bool ignores_launcher() { return detail::switch_from_environment("WEFT_IGNORE_LAUNCHER", false); }

/// True if torchrun itself started this process, whatever started torchrun.
inline bool under_torchrun() { return detail::is_set("TORCHELASTIC_RUN_ID"); }

/// True if the environment has all that ranks need to find each other by TCP: RANK or WORLD_SIZE as torchrun sets them, or
/// MASTER_ADDR beside mpirun's or srun's own variables.
bool launched_with_addresses();

/// Reads the launch from the environment. Throws UsageError that names the variable that is missing, is not a number, or
/// contradicts another launcher's.
Launch launch_from_environment();

}  // namespace weft::runtime

#ifndef WEFT_COMPILED
#include <weft/comm/launcher_impl.hpp>
#endif
