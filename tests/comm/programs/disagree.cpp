// SPDX-License-Identifier: Apache-2.0
// Every ordered pair of different calls (tests/comm/disagreements.hpp), with the last or the first rank as the odd one. All must
// be detected within a second, with an error that names both ranks and both calls, and no buffer changed.
//
//   program_disagree [--every N] [--first K] [--once]      threads, worlds of 2, 3 and 5, or that of WEFT_TEST_WORLD
//   mpirun -np 3 program_disagree [--every N]              MPI; through shared memory unless WEFT_SHARED_MEMORY=0
//   support/torchrun 3 program_disagree [--every N]        TCP, in the same way
//   ... --naps N                                           N correct programs with sleeping ranks: no rank may be accused
//
// Prints one line: "disagree: threads world 3: 756 pairs, 756 found, 0 silent, 0 late, 0 others; slowest 0.31 s". --every N runs
// each N-th pair, from the K-th on; --once runs each with short messages and one odd rank. The exit code is 1 if a pair was not
// detected.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <thread>

#include <weft/comm/threads.hpp>
#ifdef WEFT_TEST_MPI
#include <weft/comm/mpi.hpp>
#endif
#include <weft/comm/tcp.hpp>

#include "comm/disagreements.hpp"

using namespace weft_test;
using weft::Request;

namespace {

/// Communication between the ranks of a trial without weft: one page per rank in a shared file.
class Board {
 public:
  static constexpr int most = 16;
  struct Page {
    std::atomic<int> come;
    int kind, changed;
    double seconds;
    char text[4000];
  };
  Board(const char* path, int rank, int size) : rank_(rank), size_(size) {
    const int file = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ::ftruncate(file, sizeof(Page) * most) != 0) std::abort();
    pages_ = static_cast<Page*>(::mmap(nullptr, sizeof(Page) * most, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    ::close(file);
    if (pages_ == MAP_FAILED) std::abort();
  }
  /// Returns once all ranks have arrived.
  void meet() {
    const int mine = pages_[rank_].come.fetch_add(1) + 1;
    for (int q = 0; q < size_; ++q)
      while (pages_[q].come.load() < mine) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::vector<Ending> exchange(const Ending& mine) {
    Page& page = pages_[rank_];
    page.kind = mine.kind;
    page.changed = mine.changed;
    page.seconds = mine.seconds;
    std::snprintf(page.text, sizeof page.text, "%s", mine.text.c_str());
    meet();
    std::vector<Ending> all;
    for (int q = 0; q < size_; ++q)
      all.push_back({Ending::Kind(pages_[q].kind), pages_[q].changed != 0, pages_[q].seconds, pages_[q].text});
    meet();
    return all;
  }

 private:
  int rank_, size_;
  Page* pages_;
};

struct Count {
  int pairs = 0, found = 0, silent = 0, late = 0, others = 0;
  double slowest = 0;
  void add(std::span<const Ending> endings, const Case& usual, const Case& other, int odd, bool ends_alone) {
    ++pairs;
    bool noticed = false, at_deadline = false;
    for (const Ending& ending : endings) {
      slowest = std::max(slowest, ending.seconds);
      noticed = noticed || ending.kind != Ending::fine;
      at_deadline = at_deadline || ending.kind == Ending::timeout || ending.seconds > 1.0;
    }
    const std::string why = complaint(endings, usual, other, odd, ends_alone);
    if (why.empty()) ++found;
    else if (!noticed) ++silent;
    else if (at_deadline) ++late;
    else ++others;
    if (!why.empty())
      std::fprintf(stderr, "all call '%s', rank %d '%s': %s\n", usual.name.c_str(), odd, other.name.c_str(), why.c_str());
  }
  int print(const char* backend, int world) const {
    std::printf("disagree: %s world %d: %d pairs, %d found, %d silent, %d late, %d others; slowest %.2f s\n", backend, world,
                pairs, found, silent, late, others, slowest);
    return pairs == 0 || found != pairs;
  }
};

constexpr double deadline_s = 4;

/// Pairs `first`, `first + every`, ...; or each once: short messages, the odd rank the first one or the last one by turns.
struct Choice {
  int every = 1, first = 0;
  bool once = false;
  int naps = 0;  ///< correct programs, instead
};

/// Calls f(count, usual, other, odd) for each pair.
template <class F>
void each_pair(int size, Choice choice, F&& f) {
  int k = 0;
  for (const std::size_t count : {16, 20000}) {
    const auto cases = disagreements(count);
    for (std::size_t a = 0; a < cases.size(); ++a)
      for (std::size_t b = 0; b < cases.size(); ++b)
        for (const int odd : {size - 1, 0}) {
          if (a == b || !disagree(cases[a], cases[b], size)) continue;
          if (choice.once && (count != 16 || ((a + b) % 2 == 0) != (odd == 0))) continue;
          if (k++ % choice.every == choice.first) f(count, cases[a], cases[b], odd);
        }
  }
}

int on_threads(int size, Choice choice) {
  Count result;
  each_pair(size, choice, [&](std::size_t count, const Case& usual, const Case& other, int odd) {
    std::vector<Ending> endings(static_cast<std::size_t>(size));
    try {
      weft::comm::run_threads(
          size,
          [&](const Communicator& world) {
            const auto c = world.split(0, 0, "c"), d = world.split(0, 0, "d");
            Ending& mine = endings[std::size_t(world.rank())];
            mine = trial(world.rank() == odd ? other : usual, c, d, count, [] {});
            if (mine.kind != Ending::fine) throw weft::MismatchError(world.rank(), "c", "trial", 0, mine.text);
          },
          std::chrono::duration<double>(deadline_s));
    } catch (const weft::MismatchError& error) {  // a message that was never received is reported when all have ended
      for (Ending& ending : endings)
        if (ending.kind == Ending::fine) ending = {Ending::mismatch, false, ending.seconds, error.what()};
    }
    result.add(endings, usual, other, odd, true);
  });
  return result.print("threads", size);
}

/// A correct program of random calls with long naps in between, in which ranks wait for each other in many ways.
void napping(const Communicator& c, const Communicator& d, unsigned seed) {
  std::mt19937 same(seed), mine(seed * 977 + unsigned(c.rank()));
  const auto nap = [&] {
    if (mine() % 6 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(mine() % 350));
  };
  const int n = c.size(), me = c.rank();
  for (int step = 0; step < 10; ++step) {
    const std::size_t count = same() % 2 ? 16 : 20000;
    std::vector<float> x(count, 1.0f), y(count), all(count * std::size_t(n));
    const unsigned kind = same() % 8;
    const int root = int(same() % unsigned(n));
    nap();
    if (kind == 0) c.all_reduce(x);
    if (kind == 1) d.broadcast(x, root);
    if (kind == 2) c.gather(x, all, root);
    if (kind == 3) {  // the rank that waits for the one first waits for the other last
      Request request = c.all_reduce_async(x);
      nap();
      if (me % 2) request.wait();
      d.barrier();
      nap();
      request.wait();
    }
    if (kind == 4) {  // a pipeline
      if (me > 0) c.recv(y, me - 1, step);
      nap();
      if (me + 1 < n) c.send(x, me + 1, step);
    }
    if (kind == 5) c.send_recv(x, (me + 1) % n, y, (me + n - 1) % n);
    if (kind == 6) {  // messages that are not received for a long time
      Request sent = d.send_async(x, (me + 1) % n, 3);
      nap();
      c.barrier();
      d.recv(y, (me + n - 1) % n, 3);
      sent.wait();
    }
    if (kind == 7) c.split(me % 2, 0, "part").all_reduce(x);
  }
}

template <class F>
int naps_of_processes(const char* backend, Board& board, int rank, int size, int naps, F&& meet) {
  int alarms = 0;
  for (int k = 0; k < naps; ++k) {
    board.meet();
    meet([&](const Communicator& world, std::vector<Communicator>* kept, auto&& fail) {
      const auto c = world.split(0, 0, "c"), d = world.split(0, 0, "d");
      if (kept != nullptr) kept->insert(kept->end(), {c, d});
      Ending mine;
      try {
        napping(c, d, unsigned(k));
        world.group()->end();
      } catch (const std::exception& error) {
        mine = {Ending::other, false, 0, error.what()};
        std::fprintf(stderr, "naps %d: %s\n", k, error.what());
        fail(mine);
      }
      for (const Ending& ending : board.exchange(mine)) alarms += ending.kind != Ending::fine;
    });
  }
  if (rank == 0) std::printf("disagree: %s world %d: %d correct programs, %d alarms\n", backend, size, naps, alarms);
  return alarms != 0;
}

/// `meet()` returns a new world for each trial.
template <class F>
int on_processes(const char* backend, Board& board, int rank, int size, Choice choice, F&& meet) {
  if (choice.naps != 0) return naps_of_processes(backend, board, rank, size, choice.naps, meet);
  Count result;
  each_pair(size, choice, [&](std::size_t count, const Case& usual, const Case& other, int odd) {
    board.meet();
    meet([&](const Communicator& world, std::vector<Communicator>* kept, auto&& fail) {
      const auto c = world.split(0, 0, "c"), d = world.split(0, 0, "d");
      if (kept != nullptr) kept->insert(kept->end(), {c, d});
      board.meet();
      const Ending mine = trial(rank == odd ? other : usual, c, d, count, [&] { world.group()->end(); });
      if (mine.kind != Ending::fine) fail(mine);
      const auto endings = board.exchange(mine);
      if (rank == 0) result.add(endings, usual, other, odd, false);
    });
  });
  return rank == 0 ? result.print(backend, size) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Choice choice;
  for (int k = 1; k < argc; ++k) choice.once = choice.once || std::string_view(argv[k]) == "--once";
  for (int k = 1; k + 1 < argc; ++k) {
    if (std::string_view(argv[k]) == "--every") choice.every = std::max(1, std::atoi(argv[k + 1]));
    if (std::string_view(argv[k]) == "--naps") choice.naps = std::atoi(argv[k + 1]);
    if (std::string_view(argv[k]) == "--first") choice.first = std::atoi(argv[k + 1]);
  }
  const char* shared = std::getenv("WEFT_SHARED_MEMORY");
  [[maybe_unused]] const bool messages = shared != nullptr && std::string_view(shared) == "0";
  [[maybe_unused]] const char* board_path = std::getenv("WEFT_TEST_BOARD");
  [[maybe_unused]] const auto deadline = std::chrono::duration<double>(deadline_s);
#ifdef WEFT_TEST_MPI
  if (weft::comm::Mpi::detected() && board_path != nullptr) {
    weft::comm::Mpi::Session session(argc, argv);
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    Board board(board_path, rank, size);
    return on_processes(messages ? "mpi" : "mpi+shared", board, rank, size, choice, [&](auto&& f) {
      // Never freed: a communicator with messages on their way would leave them to the next one.
      auto* kept = new std::vector<Communicator>;
      kept->reserve(3);
      f(kept->emplace_back(weft::comm::mpi::over(MPI_COMM_WORLD, deadline)), kept, [](const Ending&) {});
    });
  }
#endif
  if (weft::comm::Tcp::detected() && board_path != nullptr) {
    namespace tcp = weft::comm::tcp;
    const auto launch = weft::runtime::launch_from_environment();
    Board board(board_path, launch.rank, launch.world);
    return on_processes(messages ? "tcp" : "tcp+shared", board, launch.rank, launch.world, choice, [&](auto&& f) {
      const auto process = std::make_shared<tcp::Process>(tcp::rendezvous(launch, std::chrono::seconds(20)), deadline, false);
      process->listen();
      f(tcp::over(process), nullptr, [&](const Ending& mine) {  // like a program that ends with this error
        process->tell(1, mine.kind == Ending::mismatch, std::chrono::milliseconds(400));
      });
      board.meet();
    });
  }
  int worst = 0;
  for (const int size : {2, 3, 5}) {
    const char* wanted = std::getenv("WEFT_TEST_WORLD");
    if (wanted == nullptr || std::atoi(wanted) == size) worst = std::max(worst, on_threads(size, choice));
  }
  return worst;
}
