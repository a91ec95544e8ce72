// SPDX-License-Identifier: Apache-2.0
// covers: weft/testing/forwarding_group.hpp
// The communicator that fails, delays and reorders. Its faults depend only on seed, rank and call; its operations give the same
// results; and it never makes a correct program hang.
#include <doctest/doctest.h>

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/testing/forwarding_group.hpp>
#include <weft/testing/inject_faults.hpp>

#include "comm/conformance.hpp"
#include "comm/random_calls.hpp"

using namespace weft;
using testing::FaultCounts;
using testing::Faults;
using testing::InjectedError;

namespace {

/// Some of everything, on two communicators: the number of calls is the same on every rank.
void work(const Communicator& c) {
  const Communicator part = c.split(0, c.size() - c.rank(), "tp");
  std::vector<float> x(300, 1.0f), y(5000, 2.0f), message(7), arrived(7);
  for (int step = 0; step < 6; ++step) {
    Request first = c.all_reduce_async(x), second = part.all_reduce_async(y, Reduction::max);
    Request sending = c.send_async(message, (c.rank() + 1) % c.size(), step % 2);
    Request receiving = c.recv_async(arrived, (c.rank() + c.size() - 1) % c.size(), step % 2);
    second.wait();
    while (!receiving.test()) std::this_thread::yield();
    part.barrier();
    first.wait();
    sending.wait();
  }
}

std::string error_of(int ranks, const Faults& faults, int* code_of_others = nullptr) {
  std::mutex mutex;
  std::string text = "no error";
  try {
    comm::run_threads(ranks, [&](const Communicator& c) {
      try {
        work(testing::inject_faults(c, faults));
      } catch (const InjectedError& error) {
        const std::lock_guard lock(mutex);
        if (text == "no error" || faults.fail_on >= 0) text = error.what();
        throw;
      } catch (const AbortedError&) {
        const std::lock_guard lock(mutex);
        if (code_of_others != nullptr) ++*code_of_others;
        throw;
      }
    });
  } catch (const InjectedError&) {
    return text;
  }
  return text;
}

}  // namespace

TEST_CASE("every operation gives its result without faults, however it is delayed and reordered") {
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    FaultCounts counts;
    CHECK_NOTHROW(comm::run_threads(
        ranks,
        [&](const Communicator& c) {
          const Communicator faulty =
              testing::inject_faults(c, {.seed = 3, .delay = 0.05, .longest_delay_s = 2e-4, .late = 0.5, .reorder = true});
          weft_test::check_briefly(faulty);
          weft_test::check_random_calls<float>(faulty, 2030, 30);
          for (int k = 0; k < 20; ++k) work(faulty);
          if (c.rank() == 0) counts = testing::injected(faulty);
        },
        std::chrono::seconds(60)));
    CHECK(counts.calls > 500);
    CHECK(counts.failures == 0);
    CHECK(counts.delays > 20);
    CHECK(counts.late > 20);
    CHECK(counts.reordered > 20);
  }
}

TEST_CASE("without faults nothing is injected") {
  comm::run_threads(2, [&](const Communicator& c) {
    const Communicator same = testing::inject_faults(c, {.seed = 5});
    work(same);
    const FaultCounts counts = testing::injected(same);
    CHECK(counts.calls == 1 + 6 * 5);
    CHECK((counts.failures == 0 && counts.delays == 0 && counts.late == 0 && counts.reordered == 0));
    CHECK(testing::injected(c).calls == 0);
  });
}

TEST_CASE("a rank throws at the requested call, the same each time") {
  std::set<std::string> places;
  for (std::uint64_t at = 1; at <= 31; ++at) {
    CAPTURE(at);
    const Faults faults{
        .seed = at, .fail_at = at, .fail_on = 1, .delay = 0.1, .longest_delay_s = 1e-4, .late = 0.5, .reorder = true};
    int others = 0;
    const std::string text = error_of(3, faults, &others);
    CHECK_MESSAGE(text.find("weft: rank 1, axis ") == 0, text);
    CHECK_MESSAGE(text.find(" the rank's call " + std::to_string(at) + " (seed " + std::to_string(at) + ")") != text.npos, text);
    CHECK(others <= 2);
    CHECK(error_of(3, faults) == text);
    places.insert(text.substr(text.find("injected ") + 9, 9));
  }
  CHECK(places.size() >= 4);  // before, into, into a wait, after
}

TEST_CASE("a probability gives as many failures, another seed other ones") {
  std::set<std::string> texts;
  int failed = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = error_of(2, {.seed = seed, .failure = 0.02, .fail_on = 0});
    failed += text != "no error";
    texts.insert(text.substr(0, text.find("(seed")));
  }
  // 31 calls: 1 - 0.98^31 = 0.465; those into requests that complete before a throw would have been counted, too
  CHECK(failed > 60);
  CHECK(failed < 125);
  CHECK(texts.size() > 30);
}

TEST_CASE("messages of one order arrive in it, and a late one arrives before anybody waits for it in vain") {
  comm::run_threads(
      2,
      [&](const Communicator& c) {
        const Communicator faulty = testing::inject_faults(c, {.seed = 11, .late = 0.7, .reorder = true});
        const int other = 1 - c.rank();
        for (int round = 0; round < 100; ++round) {
          std::vector<int> sent(12), arrived(12, -1);
          std::vector<Request> requests;
          for (int k = 0; k < 12; ++k) {
            sent[std::size_t(k)] = 100 * round + k;
            requests.push_back(faulty.send_async(std::span(&sent[std::size_t(k)], 1), other, k % 2));
          }
          // The other rank waits for all messages before it answers, and this one for the answer before it looks at its sends.
          for (int k = 0; k < 12; ++k) faulty.recv(std::span(&arrived[std::size_t(k)], 1), other, k % 2);
          int answer = round, heard = -1;
          Request answering = faulty.send_async(std::span(&answer, 1), other, 2);
          Request hearing = faulty.recv_async(std::span(&heard, 1), other, 2);
          while (!hearing.test()) std::this_thread::yield();
          CHECK(heard == round);
          CHECK(arrived == sent);
          answering.wait();
          for (Request& request : requests) request.wait();
        }
      },
      std::chrono::seconds(60));
}

TEST_CASE("operations in progress when a rank throws are given up, wherever the error is caught") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    bool thrown = false;
    try {
      comm::run_threads(4, [&](const Communicator& c) {
        const Communicator faulty = testing::inject_faults(c, {.seed = seed, .failure = 0.05, .late = 0.3, .reorder = true});
        for (;;) work(faulty);
      });
    } catch (const InjectedError&) {
      thrown = true;
    }
    CHECK(thrown);
  }
}
