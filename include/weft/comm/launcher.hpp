// SPDX-License-Identifier: Apache-2.0
#pragma once
// What torchrun, mpirun and srun say in the environment about the processes that they started. torchrun's names come first:
// who sets them by hand means them, and torchrun may itself have been started by srun.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include <weft/comm/run_options.hpp>

namespace weft::runtime {

/// One process of a job that a launcher started.
struct Launch {
  int rank = 0, world = 1;
  int local_world = 1;  ///< processes on this machine
  std::string host;     ///< rank 0's, MASTER_ADDR
  int port = 0;         ///< of weft's store on it
  std::string job;
  std::string secret;  ///< empty: loopback only
};

namespace detail {

inline constexpr int most_processes = 1 << 16;

inline bool is_set(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0';
}

WEFT_COLD inline int whole_number(const char* name, int least, int most) {
  const auto value = number_from_environment(name, least, most);
  if (!value) throw_error<UsageError>({"environment variable ", name, " is missing: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT belong together (torchrun --no-python sets them)"});
  if (*value != double(int(*value))) throw_error<UsageError>({"environment variable ", name, " must be a whole number"});
  return int(*value);
}

struct Names {
  const char *rank, *world, *local;
};
inline constexpr Names torch_names{"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
inline constexpr Names other_names[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                        {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
                                        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"}};

/// The secret of the job, from WEFT_SECRET or the file named by WEFT_SECRET_FILE.
WEFT_COLD inline std::string secret_from_environment() {
  if (is_set("WEFT_SECRET")) return std::getenv("WEFT_SECRET");
  if (!is_set("WEFT_SECRET_FILE")) return {};
  const char* name = std::getenv("WEFT_SECRET_FILE");
  std::FILE* file = std::fopen(name, "rb");
  if (file == nullptr) throw_error<UsageError>({"WEFT_SECRET_FILE: ", name, " cannot be read"});
  char bytes[4096];
  std::string secret(bytes, std::fread(bytes, 1, sizeof bytes, file));
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (failed || secret.empty()) throw_error<UsageError>({"WEFT_SECRET_FILE: ", name, failed ? " cannot be read" : " holds no secret"});
  return secret;
}

/// Where a launcher says how many processes it started, its name, and what a program needs that is to take part. The innermost
/// comes first: mpirun's daemons may be srun's tasks.
struct Starter {
  const char *size, *name, *need;
};
inline constexpr Starter starters[] = {{"WORLD_SIZE", "torchrun", "comm::Gloo among the program's backends"},
                                       {"OMPI_COMM_WORLD_SIZE", "mpirun", "comm::Mpi among the program's backends"},
                                       {"PMI_SIZE", "MPI's launcher", "comm::Mpi among the program's backends"},
                                       {"SLURM_STEP_NUM_TASKS", "srun", "srun --mpi=pmix for comm::Mpi, or MASTER_ADDR and MASTER_PORT for comm::Gloo"}};

}  // namespace detail

/// Throws UsageError if MPI connects another number of processes than the environment says: as where each is alone in its
/// MPI_COMM_WORLD, because the launcher belongs to another MPI library, and would train for itself.
WEFT_COLD inline void agree_with_launcher(int connected) {
  using namespace detail;
  for (const Starter& starter : starters) {
    if (!is_set(starter.size)) continue;
    if (const int started = whole_number(starter.size, 1, most_processes); started != connected)
      throw_error<UsageError>({starter.size, " is ", started, ", but MPI connects ", connected, connected == 1 ? " process" : " processes",
                               ": the program was linked with another MPI library than the launcher's, or the variable was left over"});
    if (&starter != starters) return;
  }
}

/// Throws UsageError where a launcher started several processes and no backend of the program connects them.
WEFT_COLD inline void refuse_unconnected(std::string_view backend) {
  using namespace detail;
  for (const Starter& starter : starters)
    if (is_set(starter.size))
      if (const int started = whole_number(starter.size, 1, most_processes); started > 1)
        throw_error<UsageError>({starter.size, " is ", started, ": ", starter.name, " started as many processes, each of which would be a world of ", backend, " of its own; it takes ", starter.need});
}

/// Whether this process is one that torchrun itself started, whatever started torchrun.
inline bool under_torchrun() { return detail::is_set("TORCHELASTIC_RUN_ID"); }

/// Whether the environment says all that ranks need to find each other by TCP: RANK or WORLD_SIZE as torchrun sets them, or
/// MASTER_ADDR beside mpirun's or srun's own variables.
inline bool launched_with_addresses() {
  if (detail::is_set("RANK") || detail::is_set("WORLD_SIZE")) return true;
  if (!detail::is_set("MASTER_ADDR")) return false;
  for (const auto& names : detail::other_names)
    if (detail::is_set(names.rank) && detail::is_set(names.world)) return true;
  return false;
}

/// Reads it. Throws UsageError that names the variable which is missing, is no number or disagrees with another launcher's.
WEFT_COLD inline Launch launch_from_environment() {
  using namespace detail;
  constexpr int most = most_processes;
  Launch launch;
  const Names* names = &torch_names;
  if (!is_set("RANK") && !is_set("WORLD_SIZE")) {
    for (const auto& other : other_names)
      if (names == &torch_names && is_set(other.rank) && is_set(other.world)) names = &other;
  }
  launch.world = whole_number(names->world, 1, most);
  launch.rank = whole_number(names->rank, 0, most);
  if (launch.rank >= launch.world)
    throw_error<UsageError>({names->rank, "(", launch.rank, ") is not in a world of ", names->world, "(", launch.world, ")"});
  // mpirun says plainly how many it started; what Slurm says is also true of a shell inside an allocation.
  if (names == &torch_names && !under_torchrun() && is_set("OMPI_COMM_WORLD_SIZE"))
    if (const int started = whole_number("OMPI_COMM_WORLD_SIZE", 1, most); started != launch.world)
      throw_error<UsageError>({"WORLD_SIZE is ", launch.world, ", but mpirun started ", started, " processes"});
  if (!is_set("MASTER_ADDR")) throw_error<UsageError>({"environment variable MASTER_ADDR is missing: the address of rank 0's machine, as torchrun sets it"});
  launch.host = std::getenv("MASTER_ADDR");
  if (is_set("WEFT_STORE_PORT")) {
    launch.port = whole_number("WEFT_STORE_PORT", 1, 65535);
  } else {
    // Under torchrun the launcher itself listens on MASTER_PORT.
    const bool taken = under_torchrun() || is_set("TORCHELASTIC_USE_AGENT_STORE");
    launch.port = whole_number("MASTER_PORT", 1, 65535) + (taken ? 1 : 0);
    if (launch.port > 65535) throw_error<UsageError>({"MASTER_PORT(65535) leaves no port after it for weft's store: set WEFT_STORE_PORT"});
  }
  launch.local_world = is_set(names->local) ? whole_number(names->local, 1, most) : launch.world;
  if (under_torchrun()) {
    launch.job = std::getenv("TORCHELASTIC_RUN_ID");
    // A restart of all workers is a new meeting.
    if (is_set("TORCHELASTIC_RESTART_COUNT")) launch.job += std::string("/") + std::getenv("TORCHELASTIC_RESTART_COUNT");
  } else if (is_set("SLURM_JOB_ID")) {
    launch.job = std::getenv("SLURM_JOB_ID");
  }
  launch.secret = secret_from_environment();
  return launch;
}

}  // namespace weft::runtime
