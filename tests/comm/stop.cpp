// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/store/client.hpp
// covers: weft/comm/stop.hpp weft/comm/run_options.hpp
// A process with a stop request: every wait ends within its limit and names the missing rank; threads that cannot be started;
// numbers from the environment.
#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <weft/comm/run_options.hpp>
#include <weft/comm/stop.hpp>
#include <weft/comm/store/client.hpp>
#include <weft/comm/threads.hpp>

using namespace weft;
using namespace std::chrono_literals;

namespace {

/// A stop request to the process, with this patience, until the end of a test case.
struct Asked {
  explicit Asked(std::int64_t patience_ms, bool heeded = true) {
    comm::detail::stop_state.patience_ms = patience_ms;
    comm::detail::stop_state.heeded = heeded;
    comm::request_stop(SIGTERM);
  }
  ~Asked() {
    comm::detail::stop_state.patience_ms = 0;
    comm::detail::stop_state.heeded = false;
    comm::detail::stop_state.signal = 0;
  }
};

/// The error with which run_threads ends if rank 2 of 3 stays away until the waits of the others have ended.
template <class F>
std::string ended_by(F&& waits, std::int64_t patience_ms, bool heeded = true) {
  const Asked asked(patience_ms, heeded);
  std::atomic<int> ended = 0;
  std::string text = "it did not end";
  try {
    comm::run_threads(3, [&](const Communicator& world) {
      if (world.rank() == 2) {
        const auto end = std::chrono::steady_clock::now() + 60s;
        while (ended < 2 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(5ms);
        CHECK(ended == 2);  // nobody waited for this rank
        return;
      }
      try {
        waits(world);
      } catch (const Error&) {
        ++ended;
        throw;
      }
      ++ended;
    });
  } catch (const InterruptedError& error) {
    text = error.what();
    CHECK(error.exit_code() == 130);
  }
  return text;
}

}  // namespace

TEST_CASE("after a request to stop a wait ends within its limit and names the call and the rank that is missing") {
  const auto barrier = [](const Communicator& world) { world.barrier(); };
  std::string text = ended_by(barrier, 100);
  CHECK(text.find(", axis world, barrier() #1: interrupted by SIGTERM and waited 100 ms more for rank 2, in vain") !=
        std::string::npos);
  const auto message = [](const Communicator& world) {
    std::vector<float> x(4);
    world.recv(x, 2, 7);
  };
  text = ended_by(message, 100);
  CHECK(text.find("recv of 4 float32 with tag 7 from rank 2 #1: interrupted by SIGTERM and waited 100 ms more for rank 2") !=
        std::string::npos);
  const auto long_message = [](const Communicator& world) {
    const std::vector<float> x(100000);
    world.send(x, 2);
  };
  text = ended_by(long_message, 100);
  CHECK(text.find("send of 100000 float32") != std::string::npos);
  CHECK(text.find("more for rank 2, in vain") != std::string::npos);
  const auto started = [](const Communicator& world) {
    std::vector<float> x(100000);
    Request request = world.all_reduce_async(x);
    request.wait();
  };
  CHECK(ended_by(started, 100).find("all_reduce(sum) of 100000 float32 #1: interrupted") != std::string::npos);
}

TEST_CASE("a wait that is short enough goes on after a request to stop, so that a step can end") {
  const Asked asked(700);
  comm::run_threads(2, [](const Communicator& world) {
    for (int step = 0; step < 3; ++step) {
      if (world.rank() == step % 2) std::this_thread::sleep_for(300ms);  // longer than the limit all together
      world.barrier();
    }
  });
}

TEST_CASE("a program that does not ask is ended at its next operation") {
  const auto many = [](const Communicator& world) {
    const Communicator pair = world.split(world.rank() / 2, 0, "pair");
    for (;;) pair.barrier();
  };
  const Asked asked(100, false);
  std::string text = "it did not end";
  try {
    comm::run_threads(2, many);
  } catch (const InterruptedError& error) {
    text = error.what();
  }
  CHECK(text.find("interrupted by SIGTERM, and the program does not ask world.interrupted()") != std::string::npos);
}

TEST_CASE("a rank that waits for the store ends") {
  const Asked asked(100);
  const comm::store::Identity who{0, 2, "job"};
  const auto start = std::chrono::steady_clock::now();
  const auto told = [&](const std::string& text, const std::string& part) {
    CHECK(text.find(part) != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - start < 2s);
  };
  try {
    comm::store::Client("127.0.0.1", 1, {1, 2, "job"}, "", comm::store::Clock::now() + 20s);
    CHECK(false);
  } catch (const InterruptedError& error) {
    told(error.what(),
         "rank 1: interrupted by SIGTERM while it waited: no store at 127.0.0.1:1 (Connection refused): rank 0 did not come");
  }
}

TEST_CASE("threads that cannot be started are an error, and those that were are joined") {
  const pid_t child = ::fork();
  if (child == 0) {  // a limit that the process cannot raise again
    rlimit limit{};
    ::getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = rlim_t(1) << 30;
    ::setrlimit(RLIMIT_AS, &limit);
    int code = 1;
    try {
      comm::run_threads(1000, [](const Communicator& world) { world.barrier(); });
    } catch (const UsageError& error) {
      const std::string text = error.what();
      code = text.find("ranks(1000): this process can start ") != std::string::npos && text.find("ulimit -v") != std::string::npos
                 ? 42
                 : 2;
    } catch (...) {}
    ::_exit(code);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 42);
}

TEST_CASE("numbers from the environment: a range, and nothing else") {
  using namespace runtime::detail;
  const char* name = "WEFT_TEST_NUMBER";
  CHECK(!whole_number_from_environment(name, 1, 9));
  for (const auto& [text, good] :
       {std::pair("3", true), std::pair("0", false), std::pair("10", false), std::pair("abc", false), std::pair("3x", false),
        std::pair(" 3", false), std::pair("3.5", false), std::pair("nan", false), std::pair("inf", false), std::pair("-3", false),
        std::pair("1e99", false), std::pair("99999999999999999999", false)}) {
    INFO(text);
    ::setenv(name, text, 1);
    if (good) CHECK(whole_number_from_environment(name, 1, 9) == 3);
    else CHECK_THROWS_AS(whole_number_from_environment(name, 1, 9), UsageError);
  }
  for (const char* text : {"2", "yes", "true", "01x"}) {
    ::setenv(name, text, 1);
    CHECK_THROWS_AS(switch_from_environment(name, false), UsageError);
  }
  ::setenv(name, "1", 1);
  CHECK(switch_from_environment(name, false));
  ::unsetenv(name);
  CHECK(switch_from_environment(name, true));
  for (const auto& [variable, text] :
       {std::pair("KOKKOS_NUM_THREADS", "abc"), std::pair("KOKKOS_NUM_THREADS", "0"), std::pair("OMP_NUM_THREADS", "100000"),
        std::pair("OMP_NUM_THREADS", "4,x"), std::pair("OMP_NUM_THREADS", "4,"), std::pair("OMP_THREAD_LIMIT", "0"),
        std::pair("KOKKOS_NUM_THREADS", ""), std::pair("KOKKOS_DEVICE_ID", ""), std::pair("KOKKOS_DISABLE_WARNINGS", "on"),
        std::pair("KOKKOS_PRINT_CONFIGURATION", ""), std::pair("KOKKOS_TUNE_INTERNALS", "2"),
        std::pair("KOKKOS_MAP_DEVICE_ID_BY", "RANDOM")}) {
    const char* before = std::getenv(variable);
    const std::string kept = before == nullptr ? "" : before;
    ::setenv(variable, text, 1);
    CHECK_THROWS_WITH_AS(require_thread_variables(), doctest::Contains(variable), UsageError);
    if (before == nullptr) ::unsetenv(variable);
    else ::setenv(variable, kept.c_str(), 1);
  }
  ::setenv("KOKKOS_DISABLE_WARNINGS", "True", 1);
  CHECK_NOTHROW(require_thread_variables());
  ::unsetenv("KOKKOS_DISABLE_WARNINGS");
  for (const char* variable :
       {"WEFT_SHARED_MEMORY", "WEFT_FINGERPRINTS", "WEFT_SHARE_GPUS", "WEFT_HEARTBEAT_S", "WEFT_RENDEZVOUS_S", "WEFT_STORE_PORT",
        "WEFT_IGNORE_LAUNCHER"}) {  // also if all ranks are threads
    const char* before = std::getenv(variable);
    const std::string kept = before == nullptr ? "" : before;
    ::setenv(variable, "abc", 1);
    CHECK_THROWS_WITH_AS(resolve({.ranks = 2}, 0, 0), doctest::Contains(variable), UsageError);
    if (before == nullptr) ::unsetenv(variable);
    else ::setenv(variable, kept.c_str(), 1);
  }
  ::setenv("WEFT_RANKS", "abc", 1);
  CHECK_THROWS_WITH_AS(resolve({.ranks = 2}, 0, 0), doctest::Contains("environment variable WEFT_RANKS is 'abc'"), UsageError);
  ::setenv("WEFT_RANKS", "3", 1);
  CHECK(resolve({.ranks = 2}, 0, 0).ranks == 2);
  CHECK(resolve({}, 0, 0).ranks == 3);
  ::unsetenv("WEFT_RANKS");
  CHECK_THROWS_AS(resolve({.stop_s = -1}, 0, 0), UsageError);
}
