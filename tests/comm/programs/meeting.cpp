// SPDX-License-Identifier: Apache-2.0
// Ranks that meet, communicate in the way named by the first argument, and print the outcome on standard output. test_kills.py,
// test_hostile_store.py and test_misuse.py start, stop, kill and disturb them. The backend is the launcher's.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <weft/runtime/run.hpp>
#ifdef WEFT_TEST_MPI
#include <weft/comm/mpi.hpp>
#endif
#include <weft/comm/tcp.hpp>

using namespace weft;

namespace {

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

/// Calls of all ranks, the same on each for the same `turn`.
void call(const Communicator& c, const std::string& how, unsigned turn) {
  std::mt19937 engine(turn);
  const std::size_t count = how == "long" ? 1u << 20 : 1 + engine() % 5000;
  std::vector<float> x(count, 1.0f), all(count * std::size_t(c.size()));
  const int n = c.size(), next = (c.rank() + 1) % n, before = (c.rank() + n - 1) % n;
  if (how == "messages") {
    Request sent = c.send_async(x, next);
    c.recv(std::span(all).first(count), before);
    return sent.wait();
  }
  switch (engine() % 5) {
    case 0: return c.all_reduce(x);
    case 1: return c.all_gather(x, all);
    case 2: return c.broadcast(x, int(engine() % unsigned(n)));
    case 3: return c.barrier();
    default: {
      Request first = c.all_reduce_async(x);
      c.barrier();
      first.wait();
    }
  }
}

std::size_t entries(const char* folder) {
  return std::size_t(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

long resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  return 0;
}

/// Waits until a folder of /proc has `count` entries, at most 2 s: a thread that has been joined is in the list of tasks until
/// the kernel has done with it.
bool has_again(const char* folder, std::size_t count) {
  const auto start = std::chrono::steady_clock::now();
  while (entries(folder) != count) {
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(2)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// A rank of a world of threads throws at a random call of `runs` worlds. Each other rank must get an error that names this, and
/// no thread or descriptor may be left.
int throws(unsigned runs, unsigned seed) {
  std::mt19937 engine(seed);
  double longest = 0;
  const std::size_t descriptors = entries("/proc/self/fd"), tasks = entries("/proc/self/task");
  unsigned others = 0, untold = 0, left = 0;
  for (unsigned run = 0; run < runs; ++run) {
    const int ranks = 2 + int(engine() % 3), victim = int(engine() % unsigned(ranks));
    const unsigned turn = engine() % 20;
    const std::string how = engine() % 3 == 0 ? "messages" : "collectives";
    std::atomic<int> told{0};
    auto thrown = std::chrono::steady_clock::now();
    try {
      comm::run_threads(ranks, [&](const Communicator& c) {
        try {
          for (unsigned k = 0;; ++k) {
            if (c.rank() == victim && k == turn) {
              thrown = std::chrono::steady_clock::now();
              throw std::runtime_error("injected");
            }
            call(c, how, k);
          }
        } catch (const AbortedError& error) {
          if (std::string(error.what()).find("rank " + std::to_string(victim) + " ") != std::string::npos) ++told;
          throw;
        }
      });
    } catch (const std::runtime_error& error) {
      if (std::string(error.what()) != "injected") ++others;
    }
    longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - thrown).count());
    if (told != ranks - 1) ++untold;
    if (!has_again("/proc/self/fd", descriptors) || !has_again("/proc/self/task", tasks)) ++left;
  }
  std::printf("throws %u other_errors %u not_told %u left_something %u longest_s %.4f\n", runs, others, untold, left, longest);
  return others + untold + left == 0 && longest < 2 ? 0 : 1;
}

bool stops_at_end = false;

}  // namespace

#ifdef MPI_VERSION
/// In place of MPI's own, which has a second name for that.
extern "C" int MPI_Finalize() {
  if (stops_at_end) std::raise(SIGSTOP);
  return PMPI_Finalize();
}
#endif

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "collectives";
  const unsigned turns = argc > 2 ? unsigned(std::atoi(argv[2])) : 0;  // 0: for ever
  if (how == "throws") return throws(turns, argc > 3 ? unsigned(std::atoi(argv[3])) : 1);
  const char* const place = std::getenv("OMPI_COMM_WORLD_RANK");
  if (how == "stopped" && place != nullptr && std::string(place) == "1") std::raise(SIGSTOP);  // before MPI_Init
  stops_at_end = how == "stopped-at-end" && place != nullptr && std::string(place) == "1";
  std::optional<Communicator> kept;
  const auto body = [&](World& world) -> int {
    const Communicator& c = world.communicator();
    say("rank " + std::to_string(c.rank()) + " has met " + std::to_string(c.size()) + " as " + std::string(world.backend()));
    if (how == "stopped-at-end") return 0;
    if (how == "splits") {
      for (unsigned turn = 0; turn < turns; ++turn) {
        if (turn == turns / 4) say("rank " + std::to_string(c.rank()) + " had " + std::to_string(resident_kib()) + " KiB");
        c.split(0, c.rank(), "part").barrier();
      }
      say("rank " + std::to_string(c.rank()) + " has " + std::to_string(resident_kib()) + " KiB");
      return 0;
    }
    try {
      const auto start = std::chrono::steady_clock::now();
      for (unsigned turn = 0; turns == 0 || turn < turns; ++turn) {
        call(c, how, turn);
        if (how == "compute" && c.rank() == c.size() - 1) std::this_thread::sleep_for(std::chrono::seconds(3));
        if (how == "compute" && turn == 1) break;
        if (how == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(5));
        if (how == "callback" && c.rank() == c.size() - 1 && turn == 3) {
          // The user's own code throws between two calls.
          const std::function<void()> callback = [] { throw std::out_of_range("the callback's own error"); };
          callback();
        }
      }
      say("rank " + std::to_string(c.rank()) + " took " +
          std::to_string(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
    } catch (const CommunicationError& error) {
      say(error.what());
      throw;
    }
    if (how == "kept" && c.rank() == 0) kept.emplace(c);
    return 0;
  };
  const RunOptions options{.argc = argc, .argv = argv};
  const int code = run<comm::Threads,
#ifdef WEFT_TEST_MPI
                       comm::Mpi,
#endif
                       comm::Tcp>(options, body);
  if (kept) {
    try {
      kept->barrier();
      say("a barrier of a world that has ended");
    } catch (const Error& error) {
      say(error.what());
    }
    kept.reset();
  }
  return code;
}
