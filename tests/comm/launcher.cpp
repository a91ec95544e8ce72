// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/this_host.hpp
// A launch as launchers describe it in the environment: torchrun, mpirun and srun, and descriptions that contradict themselves.
#include <weft/comm/launcher.hpp>

#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <weft/comm/this_host.hpp>
#include <weft/core/error.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

/// The environment with these variables alone, of those that launchers set, as long as it lives.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<const char*, const char*>>& set) {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "MPI_LOCALNRANKS",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_NTASKS_PER_NODE",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_JOB_ID",
                             "SLURM_STEP_ID",
                             "TORCHELASTIC_RUN_ID",
                             "TORCHELASTIC_RESTART_COUNT",
                             "TORCHELASTIC_USE_AGENT_STORE",
                             "PMIX_NAMESPACE",
                             "OMPI_MCA_ess_base_jobid",
                             "PMI_JOBID",
                             "WEFT_JOB",
                             "WEFT_SECRET",
                             "WEFT_SECRET_FILE",
                             "WEFT_IGNORE_LAUNCHER",
                             "WEFT_STORE_PORT"}) {
      const char* const before = std::getenv(name);
      before_.emplace_back(name, before == nullptr ? std::nullopt : std::optional<std::string>(before));
      ::unsetenv(name);
    }
    for (const auto& [name, value] : set) ::setenv(name, value, 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : before_)
      if (value) ::setenv(name, value->c_str(), 1);
      else ::unsetenv(name);
  }

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

}  // namespace

TEST_CASE("launches of torchrun, mpirun and srun") {
  {
    const Environment nothing({});
    CHECK(!runtime::launched_with_addresses());
  }
  {
    const Environment by_hand({{"RANK", "1"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "node7"},
                               {"MASTER_PORT", "2900"},
                               {"WEFT_JOB", "a"}});
    CHECK(runtime::launched_with_addresses());
    const runtime::Launch launch = runtime::launch_from_environment();
    CHECK(launch.rank == 1);
    CHECK(launch.world == 4);
    CHECK(launch.local_world == 2);
    CHECK(launch.host == "node7");
    CHECK(launch.port == 2900);
    CHECK(launch.job == "a");
  }
  {
    const Environment torchrun({{"RANK", "0"},
                                {"WORLD_SIZE", "2"},
                                {"MASTER_ADDR", "::1"},
                                {"MASTER_PORT", "2900"},
                                {"TORCHELASTIC_RUN_ID", "r"},
                                {"TORCHELASTIC_RESTART_COUNT", "3"}});
    const runtime::Launch launch = runtime::launch_from_environment();
    CHECK(launch.port == 2901);  // torchrun listens on the port itself
    CHECK(launch.local_world == 2);
    CHECK(launch.job == "torchrun r/3");
  }
  {
    const Environment mpirun({{"OMPI_COMM_WORLD_RANK", "2"},
                              {"OMPI_COMM_WORLD_SIZE", "3"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                              {"MASTER_ADDR", "node7"},
                              {"MASTER_PORT", "9"}});
    CHECK(runtime::launched_with_addresses());
    CHECK(runtime::launch_from_environment().rank == 2);
    CHECK(runtime::launch_from_environment().local_world == 1);
    CHECK_NOTHROW(runtime::agree_with_launcher(3));
    CHECK_THROWS_WITH_AS(runtime::agree_with_launcher(1),
                         doctest::Contains("OMPI_COMM_WORLD_SIZE is 3, but MPI connects 1 process"), UsageError);
  }
  {
    const Environment srun({{"SLURM_PROCID", "5"},
                            {"SLURM_NTASKS", "8"},
                            {"SLURM_JOB_ID", "17"},
                            {"SLURM_STEP_ID", "0"},
                            {"MASTER_ADDR", "node7"},
                            {"WEFT_STORE_PORT", "3000"}});
    const runtime::Launch launch = runtime::launch_from_environment();
    CHECK(launch.rank == 5);
    CHECK(launch.port == 3000);
    CHECK(launch.job == "srun 17.0");
  }
}

TEST_CASE("descriptions that are incomplete or contradict themselves are refused") {
  const auto refused = [](const std::vector<std::pair<const char*, const char*>>& set, const char* text) {
    const Environment environment(set);
    CHECK_THROWS_WITH_AS(runtime::launch_from_environment(), doctest::Contains(text), UsageError);
  };
  refused({{"RANK", "0"}}, "environment variable WORLD_SIZE is missing");
  refused({{"WORLD_SIZE", "2"}}, "environment variable RANK is missing");
  refused({{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK(2) is not in a world of WORLD_SIZE(2)");
  refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}}, "WORLD_SIZE is 2, but mpirun started 3 processes");
  refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "environment variable MASTER_ADDR is missing");
  refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "65535"}, {"TORCHELASTIC_RUN_ID", "r"}},
          "MASTER_PORT(65535) leaves no port after it");
}

TEST_CASE("processes that no backend connects are refused, unless they are separate programs") {
  using Variables = std::vector<std::pair<const char*, const char*>>;
  const auto f = [](World&) { return 0; };
  const RunOptions options{.ranks = 1, .threads_per_rank = 1};
  for (const auto& [size, rank, launcher] :
       {std::tuple("WORLD_SIZE", "RANK", "torchrun"), std::tuple("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun"),
        std::tuple("PMI_SIZE", "PMI_RANK", "MPI's launcher"), std::tuple("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun")}) {
    CAPTURE(launcher);
    {
      const Environment several({{size, "2"}, {rank, "0"}});
      CHECK_THROWS_WITH_AS(runtime::refuse_unconnected("threads"),
                           doctest::Contains((std::string(size) + " is 2: " + launcher + " started as many processes").c_str()),
                           UsageError);
      CHECK(run<comm::Threads>(options, f) == 2);
    }
    const Variables fine[] = {
        {{size, "1"}, {rank, "0"}}, {{size, "2"}}, {{size, "2"}, {rank, "0"}, {"WEFT_IGNORE_LAUNCHER", "1"}}};
    for (const Variables& variables : fine) {
      const Environment environment(variables);
      CHECK(run<comm::Threads>(options, f) == 0);
    }
  }
  const Environment in_a_batch_script({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}});
  CHECK(run<comm::Threads>(options, f) == 0);
}

TEST_CASE("a machine has one number") {
  CHECK(comm::this_host() == comm::this_host());
  CHECK(comm::this_host() != 0);
}
