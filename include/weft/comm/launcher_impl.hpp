// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/launcher.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <unistd.h>

#include <weft/comm/launcher.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/input_file.hpp>

namespace weft::runtime::detail {

WEFT_COLD WEFT_INLINE int whole_number(const char* name, int least, int most) {
  const auto value = whole_number_from_environment(name, least, most);
  if (!value)
    throw_error<UsageError>(
        {"environment variable ", name,
         " is missing: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT belong together (torchrun --no-python sets them)"});
  return *value;
}

/// The name of the job: WEFT_JOB, its name under torchrun, srun or mpirun, or the terminal session of processes started by hand,
/// which only ranks of one machine can compare.
WEFT_COLD WEFT_INLINE std::string job_from_environment(const std::string& host) {
  const auto text = [](const char* name) { return is_set(name) ? std::string(std::getenv(name)) : std::string(); };
  if (is_set("WEFT_JOB")) return text("WEFT_JOB");
  // A restart of all workers is a new rendezvous.
  if (is_set("TORCHELASTIC_RUN_ID")) return "torchrun " + text("TORCHELASTIC_RUN_ID") + "/" + text("TORCHELASTIC_RESTART_COUNT");
  if (is_set("SLURM_JOB_ID")) return "srun " + text("SLURM_JOB_ID") + "." + text("SLURM_STEP_ID");
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"})
    if (is_set(name)) return "mpirun " + text(name);
  // Ranks of several machines have no common session; their secret identifies the job.
  if (host != "localhost" && !host.starts_with("127.") && host != "::1") return {};
  return "of session " + std::to_string(::getsid(0));
}

/// The secret of the job, from WEFT_SECRET or the file that WEFT_SECRET_FILE names. Throws UsageError for a file that cannot be
/// read.
WEFT_COLD WEFT_INLINE std::string secret_from_environment() {
  if (is_set("WEFT_SECRET")) return std::getenv("WEFT_SECRET");
  if (!is_set("WEFT_SECRET_FILE")) return {};
  const weft::detail::InputFile file("environment variable WEFT_SECRET_FILE", std::getenv("WEFT_SECRET_FILE"), "file of a secret",
                                     4096);
  std::string secret = file.read();
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.empty())
    throw_error<UsageError>({"environment variable WEFT_SECRET_FILE: '", std::getenv("WEFT_SECRET_FILE"), "' holds no secret"});
  return secret;
}

WEFT_COLD WEFT_INLINE void require_launch_variables() {
  constexpr std::size_t least = 16;  // bytes: store::least_secret_bytes
  for (const char* name : {"WEFT_SECRET", "WEFT_SECRET_FILE"}) {
    if (!is_set(name)) continue;
    if (const std::size_t bytes = secret_from_environment().size(); bytes < least)
      throw_error<UsageError>(
          {"environment variable ", name, " gives a secret of ", bytes, " bytes: at least ", least, " are needed"});
    return;  // the second one is not looked at
  }
}

}  // namespace weft::runtime::detail

namespace weft::runtime {

WEFT_COLD WEFT_INLINE void agree_with_launcher(int connected) {
  using namespace detail;
  for (const Starter& starter : starters) {
    if (!is_set(starter.size)) continue;
    if (const int started = whole_number(starter.size, 1, most_processes); started != connected)
      throw_error<UsageError>(
          {starter.size, " is ", started, ", but MPI connects ", connected, connected == 1 ? " process" : " processes",
           ": the program was linked with another MPI library than the launcher's, or the variable was left over"});
    if (&starter != starters) return;
  }
}

WEFT_COLD WEFT_INLINE void refuse_unconnected(std::string_view backend) {
  using namespace detail;
  for (const Starter& starter : starters)
    if (is_set(starter.size) && is_set(starter.rank))
      if (const int started = whole_number(starter.size, 1, most_processes); started > 1)
        throw_error<UsageError>({starter.size, " is ", started, ": ", starter.name,
                                 " started as many processes, each of which would be a world of ", backend,
                                 " of its own; it takes ", starter.need,
                                 ", or WEFT_IGNORE_LAUNCHER=1 if they are separate programs (a sweep of parameters)"});
}

WEFT_INLINE bool launched_with_addresses() {
  if (detail::is_set("RANK") || detail::is_set("WORLD_SIZE")) return true;
  if (!detail::is_set("MASTER_ADDR")) return false;
  for (const auto& names : detail::other_names)
    if (detail::is_set(names.rank) && detail::is_set(names.world)) return true;
  return false;
}

WEFT_COLD WEFT_INLINE Launch launch_from_environment() {
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
  // mpirun's number is that of its processes; Slurm's is also set in a shell inside an allocation.
  if (names == &torch_names && !under_torchrun() && is_set("OMPI_COMM_WORLD_SIZE"))
    if (const int started = whole_number("OMPI_COMM_WORLD_SIZE", 1, most); started != launch.world)
      throw_error<UsageError>({"WORLD_SIZE is ", launch.world, ", but mpirun started ", started, " processes"});
  if (!is_set("MASTER_ADDR"))
    throw_error<UsageError>(
        {"environment variable MASTER_ADDR is missing: the address of rank 0's machine, as torchrun sets it"});
  launch.host = std::getenv("MASTER_ADDR");
  if (is_set("WEFT_STORE_PORT")) {
    launch.port = whole_number("WEFT_STORE_PORT", 1, 65535);
  } else {
    // Under torchrun the launcher itself listens on MASTER_PORT.
    const bool taken = under_torchrun() || is_set("TORCHELASTIC_USE_AGENT_STORE");
    launch.port = whole_number("MASTER_PORT", 1, 65535) + (taken ? 1 : 0);
    if (launch.port > 65535)
      throw_error<UsageError>({"MASTER_PORT(65535) leaves no port after it for weft's store: set WEFT_STORE_PORT"});
  }
  launch.local_world = is_set(names->local) ? whole_number(names->local, 1, most) : launch.world;
  launch.job = job_from_environment(launch.host);
  launch.secret = secret_from_environment();
  return launch;
}

}  // namespace weft::runtime
