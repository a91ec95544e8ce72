// SPDX-License-Identifier: Apache-2.0
#pragma once
// The description of a job by its launcher: the environment variables that torchrun, mpirun and srun give to the processes that
// they start. torchrun's variables take precedence: a user may have set them on purpose, and srun may have started torchrun.
//
//   if (launched_with_addresses()) connect(launch_from_environment());

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
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

/// The secret of the job, from WEFT_SECRET or the file that WEFT_SECRET_FILE names.
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

/// A launcher's variable for the number of started processes, its name, and the requirement for a program that takes part. The
/// innermost launcher comes first: mpirun's daemons may be srun's tasks.
struct Starter {
  const char *size, *name, *need;
};
inline constexpr Starter starters[] = {{"WORLD_SIZE", "torchrun", "comm::Gloo among the program's backends"},
                                       {"OMPI_COMM_WORLD_SIZE", "mpirun", "comm::Mpi among the program's backends"},
                                       {"PMI_SIZE", "MPI's launcher", "comm::Mpi among the program's backends"},
                                       {"SLURM_STEP_NUM_TASKS", "srun", "srun --mpi=pmix for comm::Mpi, or MASTER_ADDR and MASTER_PORT for comm::Gloo"}};

}  // namespace detail

/// Throws UsageError if MPI connects another number of processes than the environment says. For example, every process is alone
/// in its MPI_COMM_WORLD, and would train alone, if the launcher belongs to another MPI library.
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

/// Throws UsageError if a launcher started several processes and no backend of the program connects them.
WEFT_COLD inline void refuse_unconnected(std::string_view backend) {
  using namespace detail;
  for (const Starter& starter : starters)
    if (is_set(starter.size))
      if (const int started = whole_number(starter.size, 1, most_processes); started > 1)
        throw_error<UsageError>({starter.size, " is ", started, ": ", starter.name, " started as many processes, each of which would be a world of ", backend, " of its own; it takes ", starter.need});
}

/// True if torchrun itself started this process, whatever started torchrun.
inline bool under_torchrun() { return detail::is_set("TORCHELASTIC_RUN_ID"); }

/// True if the environment has all that ranks need to find each other by TCP: RANK or WORLD_SIZE as torchrun sets them, or
/// MASTER_ADDR beside mpirun's or srun's own variables.
inline bool launched_with_addresses() {
  if (detail::is_set("RANK") || detail::is_set("WORLD_SIZE")) return true;
  if (!detail::is_set("MASTER_ADDR")) return false;
  for (const auto& names : detail::other_names)
    if (detail::is_set(names.rank) && detail::is_set(names.world)) return true;
  return false;
}

/// Reads the launch from the environment. Throws UsageError that names the variable that is missing, is not a number, or
/// contradicts another launcher's.
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
