// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/threads/census.hpp
// The proof of a deadlock (comm/threads/census.hpp) with threads that lose their core at the worst places: programs that are
// right are never accused, ranks that do wait for each other are always found. Runs of correct programs: WEFT_TEST_RUNS.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace weft_test {

/// In one of twelve calls the thread sleeps, longer than several of a rank's looks at its operations last (20 ms each).
inline void pause() {
  static std::atomic<std::uint64_t> threads{0};
  thread_local std::uint64_t state = 0x9e3779b97f4a7c15ull * (1 + threads++);
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  const auto drawn = state >> 33;
  if (drawn % 12 == 0) std::this_thread::sleep_for(std::chrono::microseconds(drawn / 12 % 200000));
}

}  // namespace weft_test

#define WEFT_PAUSE() weft_test::pause()

#include <doctest/doctest.h>

#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/comm/threads/census.hpp>

#include "support/figure.hpp"

using namespace weft;

namespace {

using Program = std::function<void(const Communicator&, int run, std::mt19937& own)>;

void nap(std::mt19937& engine, unsigned most_ms) {
  std::this_thread::sleep_for(std::chrono::microseconds(engine() % (1000 * most_ms)));
}

/// Programs in which most ranks wait most of the time, and one continues for which no rank waits directly.
const std::vector<Program> right_programs = {
    [](const Communicator& c, int run, std::mt19937& own) {  // a message goes round, short or long, with a nap at each rank
      std::vector<int> token(run % 2 ? 4 : 5000);
      const int next = (c.rank() + 1) % c.size(), previous = (c.rank() + c.size() - 1) % c.size();
      for (int lap = 0; lap < 2; ++lap) {
        if (c.rank() != 0) c.recv(token, previous);
        nap(own, 60);
        c.send(token, next);
        if (c.rank() == 0) c.recv(token, previous);
      }
    },
    [](const Communicator& c, int run, std::mt19937& own) {  // collectives of all and of halves, each rank late in turn
      const Communicator part = c.split(c.rank() % 2, 0, "tp");
      std::vector<float> x(run % 2 ? 8 : 2000);
      for (int step = 0; step < 3; ++step) {
        if (c.rank() == step % c.size()) nap(own, 120);
        part.barrier();
        Request reduced = c.all_reduce_async(x);
        nap(own, 20);
        reduced.wait();
      }
    },
    [](const Communicator& c, int run, std::mt19937& own) {  // two ranks answer each other, the others wait for both
      std::vector<int> ball(run % 2 ? 4 : 5000);
      for (int turn = 0; turn < 10 && c.rank() < 2; ++turn) {
        if (turn % 2 == c.rank()) {
          nap(own, 120);
          c.send(ball, 1 - c.rank());
        } else {
          c.recv(ball, 1 - c.rank());
        }
      }
      c.barrier();
    },
    [](const Communicator& c, int run, std::mt19937& own) {  // ranks that end while others still wait for their messages
      std::vector<int> first(3), second(run % 2 ? 3 : 5000);
      if (c.rank() == 0) {
        nap(own, 120);
        for (int q = 1; q < c.size(); ++q) c.send(first, q);
        return;
      }
      if (c.rank() > 1) c.recv(second, c.rank() - 1);
      nap(own, 60);
      if (c.rank() + 1 < c.size()) c.send(second, c.rank() + 1);
      c.recv(first, 0);
    },
};

const int runs = int(weft_test::rounds(1000));

}  // namespace

TEST_CASE("a program that is right is never accused, wherever its threads lose their cores") {
  // Ranks sleep nearly all the time, so that many worlds can run concurrently.
  constexpr int beside = 120;
  std::atomic<int> next{0}, accused{0};
  std::atomic<bool> first{true};
  std::string text;
  std::vector<std::thread> workers;
  for (int w = 0; w < beside; ++w)
    workers.emplace_back([&] {
      for (int run = next++; run < runs; run = next++) try {
          comm::run_threads(3 + run % 3, [&](const Communicator& c) {
            std::mt19937 own(unsigned(run) * 16 + unsigned(c.rank()));
            right_programs[std::size_t(run) % right_programs.size()](c, run, own);
          });
        } catch (const std::exception& error) {
          ++accused;
          if (first.exchange(false)) text = error.what();
        }
    });
  for (std::thread& worker : workers) worker.join();
  INFO(text);
  CHECK(accused == 0);
  std::printf("deadlock: %d runs of right programs, %d accused\n", runs, accused.load());
}

TEST_CASE("ranks that wait for each other are found, wherever their threads lose their cores") {
  struct Case {
    const char* name;
    std::function<void(const Communicator&)> program;
  };
  using C = const Communicator&;
  const auto next = [](C c) { return (c.rank() + 1) % c.size(); };
  const Case cases[] = {
      {"everybody receives",
       [&](C c) {
         std::vector<int> x(3);
         c.recv(x, next(c));
       }},
      {"every rank sends a message that is too long to be kept",
       [&](C c) {
         std::vector<int> x(5000);
         c.send(x, next(c));
       }},
      {"groups in another order",
       [](C c) {
         const Communicator tp = c.split(0, 0, "tp"), dp = c.split(0, 0, "dp");
         (c.rank() == 0 ? tp : dp).barrier();
         (c.rank() == 0 ? dp : tp).barrier();
       }},
      {"a rank has ended, another receives from it",
       [](C c) {
         std::vector<int> x(3);
         if (c.rank() == 0) c.recv(x, c.size() - 1);
       }},
      {"a rank ends without the last collective",
       [](C c) {
         c.barrier();
         if (c.rank() != 0) c.barrier();
       }},
      {"a rank receives, the others are in a collective",
       [&](C c) {
         std::vector<int> x(3);
         if (c.rank() == 0) c.recv(x, 1);
         else c.barrier();
       }},
      {"more collectives started than there are slots, without one rank",
       [](C c) {
         std::vector<int> x(3);
         std::vector<Request> requests;
         if (c.rank() == 0) return c.recv(x, 1);
         for (int k = 0; k < 20; ++k) requests.push_back(c.all_reduce_async(x));
       }},
      {"a message that no rank receives while all wait for its receipt",
       [&](C c) {
         std::vector<int> x(5000), y(5000);
         const Request kept = c.send_async(x, next(c), 7);
         c.recv(y, next(c), 8);
       }},
  };
  for (const Case& one : cases)
    for (const int ranks : {2, 3, 5}) {
      CAPTURE(one.name);
      CAPTURE(ranks);
      const auto start = std::chrono::steady_clock::now();
      CHECK_THROWS_WITH_AS(comm::run_threads(ranks, one.program, std::chrono::seconds(60)),
                           doctest::Contains("ranks wait for each other and none can go on"), MismatchError);
      CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 10);
    }
}

TEST_CASE("no proof is given by one wave, a poll from before the wave, a step or an end in between") {
  comm::threads::Census census(2);
  const auto all_report = [&](std::uint64_t steps0, std::uint64_t steps1) {
    const auto wave = census.wave();
    return int(census.report(0, wave, steps0)) + int(census.report(1, wave, steps1));
  };
  CHECK(all_report(5, 7) == 0);  // the first wave: earlier actions are unknown
  CHECK(all_report(5, 8) == 0);  // rank 1 has made a step: it may have woken rank 0 after its report
  const auto old = census.wave();
  CHECK(all_report(6, 8) == 0);
  CHECK_FALSE(census.report(0, old, 6));  // this poll began before the wave did
  CHECK_FALSE(census.report(1, census.wave(), 8));
  CHECK_FALSE(census.report(1, census.wave(), 8));  // twice the same rank is not both
  CHECK(census.report(0, census.wave(), 6));

  comm::threads::Census ending(3);
  auto wave = ending.wave();
  for (const int rank : {0, 1, 2}) CHECK_FALSE(ending.report(rank, wave, 1));
  wave = ending.wave();
  CHECK_FALSE(ending.report(2, wave, 1));
  CHECK_FALSE(ending.report(0, wave, 1));
  ending.end(2);  // its actions before its end are unknown
  CHECK_FALSE(ending.report(1, wave, 1));
  wave = ending.wave();
  CHECK_FALSE(ending.report(1, wave, 1));
  CHECK(ending.report(0, wave, 1));
}
