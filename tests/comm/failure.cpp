// SPDX-License-Identifier: Apache-2.0
// Ranks that throw, waits beyond their deadline, dropped requests: every rank ends promptly, with the first error.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <weft/comm/threads.hpp>

#include "support/figure.hpp"

using namespace weft;

namespace {

double seconds_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("a rank that throws ends all others, wherever they wait") {
  using Wait = std::function<void(const Communicator&)>;
  const std::vector<Wait> waits = {
      [](const Communicator& c) { c.barrier(); },
      [](const Communicator& c) {
        std::vector<float> x(100000);
        c.all_reduce(x);
      },
      [](const Communicator& c) {
        std::vector<float> x(10);
        c.recv(x, c.size() - 1);
      },
      [](const Communicator& c) {
        std::vector<float> x(100000);
        c.send(x, c.size() - 1);
      },
      [](const Communicator& c) {
        std::vector<float> x(100000), y(10);
        Request first = c.all_reduce_async(x), second = c.recv_async(y, c.size() - 1);
        while (!second.test()) std::this_thread::yield();
      },
      [](const Communicator& c) { c.split(0, 0, "tp"); },
  };
  for (const int ranks : {2, 3, 8}) {
    for (const auto& wait : waits) {
      std::atomic<int> waiting{0}, aborted{0};
      const double seconds = seconds_of([&] {
        CHECK_THROWS_WITH_AS(comm::run_threads(ranks,
                                               [&](const Communicator& c) {
                                                 c.barrier();
                                                 if (c.rank() == c.size() - 1) {
                                                   while (waiting != c.size() - 1) std::this_thread::yield();
                                                   std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                                   throw std::runtime_error("boom");
                                                 }
                                                 ++waiting;
                                                 try {
                                                   wait(c);
                                                 } catch (const AbortedError& error) {
                                                   if (std::string(error.what()).find("has failed: boom") != std::string::npos)
                                                     ++aborted;
                                                   throw;
                                                 }
                                               }),
                             "boom", std::runtime_error);
      });
      CHECK(seconds < 1.0);
      CHECK(aborted == ranks - 1);
    }
  }
}

TEST_CASE("errors carry rank, axis, operation and sequence number") {
  std::optional<AbortedError> error;
  std::atomic<bool> split{false};
  CHECK_THROWS_AS(comm::run_threads(2,
                                    [&](const Communicator& c) {
                                      const Communicator tp = c.split(0, 0, "tp");
                                      if (c.rank() == 1) {  // once the other has left the split
                                        while (!split) std::this_thread::yield();
                                        std::this_thread::sleep_for(std::chrono::milliseconds(100));
                                        throw DivergedError("ten steps without a finite gradient");
                                      }
                                      split = true;
                                      std::vector<double> x(3);
                                      try {
                                        tp.all_reduce(x);
                                      } catch (const AbortedError& caught) {
                                        error = caught;
                                      }
                                    }),
                  DivergedError);
  REQUIRE(error);
  CHECK(error->rank() == 0);
  CHECK(error->axis() == "tp");
  CHECK(error->operation() == "all_reduce(sum) of 3 float64");
  CHECK(error->sequence() == 1);
  CHECK(std::string(error->what()) ==
        "weft: rank 0, axis tp, all_reduce(sum) of 3 float64 #1: rank 1 has failed: weft: ten steps without a finite gradient");
}

TEST_CASE("a wait ends at its deadline, and the error names the place of every rank") {
  const double seconds = seconds_of([] {
    CHECK_THROWS_WITH_AS(comm::run_threads(
                             3,
                             [](const Communicator& c) {
                               c.barrier();
                               if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(700));
                               c.barrier();
                             },
                             std::chrono::milliseconds(200)),
                         doctest::Contains("waited longer than the deadline of 0.2"), TimeoutError);
  });
  CHECK(seconds >= 0.2);
  CHECK(seconds < 1.5);
  CHECK_THROWS_WITH_AS(
      comm::run_threads(
          2,
          [](const Communicator& c) {
            std::vector<int> x(7);
            if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
            c.broadcast(x, 1);
          },
          std::chrono::milliseconds(100)),
      doctest::Contains("rank 0 waits, last: broadcast of 7 int32 with root 1 on world #1 (not complete); rank 1 is not waiting"),
      TimeoutError);
}

TEST_CASE("requests may be dropped: their destructor waits, and an exception on its way does not hang in it") {
  CHECK_NOTHROW(comm::run_threads(4, [](const Communicator& c) {
    std::vector<float> x(50000, 1.0f);
    { const Request dropped = c.all_reduce_async(x); }
    if (x[49999] != 4.0f) throw std::runtime_error("not reduced");
  }));
  const double seconds = seconds_of([] {
    CHECK_THROWS_WITH_AS(comm::run_threads(4,
                                           [](const Communicator& c) {
                                             std::vector<float> x(50000, 1.0f);
                                             std::vector<int> y(3);
                                             const Request one = c.all_reduce_async(x), two = c.recv_async(y, (c.rank() + 1) % 4);
                                             if (c.rank() == 2) throw UsageError("in the middle");
                                             c.barrier();
                                           }),
                         "weft: in the middle", UsageError);
  });
  CHECK(seconds < 1.0);
}

TEST_CASE("1,000 seeded runs in which a random rank throws at a random moment: none hangs, the first error is reported") {
  std::mt19937 engine(2026);
  double slowest = 0;
  for (int run = 0; run < 1000; ++run) {
    const int ranks = 2 + int(engine() % 7), culprit = int(engine() % unsigned(ranks)), moment = int(engine() % 40);
    const std::size_t count = engine() % 2 ? 100 : 5000;
    slowest = std::max(slowest, seconds_of([&] {
                         CHECK_THROWS_WITH_AS(comm::run_threads(ranks,
                                                                [&](const Communicator& c) {
                                                                  const Communicator halves = c.split(c.rank() % 2, 0, "tp");
                                                                  std::vector<float> x(count), all(count * std::size_t(c.size())),
                                                                      message(count), arrived(count);
                                                                  int step = 0;
                                                                  const auto tick = [&] {
                                                                    if (step++ == moment && c.rank() == culprit)
                                                                      throw Error("injected");
                                                                  };
                                                                  const int next = (c.rank() + 1) % c.size(),
                                                                            previous = (c.rank() + c.size() - 1) % c.size();
                                                                  for (;;) {
                                                                    tick();
                                                                    Request reduced = c.all_reduce_async(x);
                                                                    tick();
                                                                    halves.all_reduce(message);
                                                                    tick();
                                                                    c.send_recv(message, next, arrived, previous);
                                                                    tick();
                                                                    reduced.wait();
                                                                    c.all_gather(x, all);
                                                                  }
                                                                }),
                                              "weft: injected", Error);
                       }));
  }
  weft_test::figure(1, 1000, "runs in which a random rank throws at a random moment", slowest < 2.0 ? 0 : 1, "slower than 2 s");
  CHECK(slowest < 2.0);
}
