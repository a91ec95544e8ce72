// SPDX-License-Identifier: Apache-2.0
// The threads of a device: each piece once, on the same thread as before if that is awake, exceptions to the caller, and no wait
// for workers that are not there.
// covers: weft/core/relax.hpp

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <thread>
#include <vector>

#include <weft/core/relax.hpp>
#include <weft/device/thread_team.hpp>

using weft::detail::TeamLoop;
using weft::detail::ThreadTeam;

namespace {

template <class F>
void run(ThreadTeam& team, std::size_t threads, std::size_t pieces, const F& f) {
  const auto call = [](const void* body, std::size_t piece, std::size_t thread) {
    (*static_cast<const F*>(body))(piece, thread);
  };
  team.run(threads, TeamLoop{call, &f, pieces});
}

}  // namespace

TEST_CASE("each piece runs once, by a thread of the team, loop after loop") {
  for (const std::size_t threads : {1, 2, 3, 8}) {
    ThreadTeam team;
    std::size_t wrong = 0;
    for (std::size_t loop = 0; loop < 400; ++loop) {
      const std::size_t pieces = loop % 21;
      std::vector<int> visits(pieces);  // not atomic: only one thread runs a piece, and the caller reads afterwards
      std::atomic<std::size_t> strangers{0};
      run(team, threads, pieces, [&](std::size_t piece, std::size_t thread) {
        ++visits[piece];
        if (thread >= threads) ++strangers;
      });
      for (const int visited : visits) wrong += visited != 1;
      wrong += strangers;
      if (loop % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the workers fall asleep
    }
    CAPTURE(threads);
    CHECK(wrong == 0);
  }
}

TEST_CASE("workers take part: pieces that wait for each other end") {
  ThreadTeam team;
  for (int loop = 0; loop < 20; ++loop) {
    std::atomic<int> arrived{0};
    run(team, 3, 3, [&](std::size_t, std::size_t) {
      ++arrived;
      while (arrived < 3) std::this_thread::yield();
    });
    CHECK(arrived == 3);
  }
}

TEST_CASE("an exception of a body reaches the caller, and the team works on") {
  ThreadTeam team;
  for (int loop = 0; loop < 50; ++loop) {
    CHECK_THROWS_AS(run(team, 3, 12,
                        [&](std::size_t piece, std::size_t) {
                          if (piece % 4 == 3) throw std::runtime_error("piece");
                        }),
                    std::runtime_error);
    std::atomic<int> ran{0};
    run(team, 3, 12, [&](std::size_t, std::size_t) { ++ran; });
    CHECK(ran == 12);
  }
}

TEST_CASE("a fork, which has none of the workers, computes alone and ends") {
  ThreadTeam team;
  std::atomic<int> ran{0};
  const auto count = [&](std::size_t, std::size_t) { ++ran; };
  run(team, 3, 6, count);
  const pid_t child = fork();
  if (child == 0) {
    {
      ThreadTeam forked;
      run(forked, 2, 4, count);
    }
    run(team, 3, 6, count);
    team.~ThreadTeam();
    _exit(ran == 16 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  run(team, 3, 6, count);
  CHECK(ran == 12);
}

TEST_CASE("a team without loops has no threads, and teams end with their workers asleep or awake") {
  for (int team = 0; team < 200; ++team) {
    ThreadTeam idle, used;
    int ran = 0;
    run(used, 2, 1, [&](std::size_t, std::size_t) { ++ran; });
    std::atomic<int> shared{0};
    run(used, 2, 2, [&](std::size_t, std::size_t) { ++shared; });
    if (team % 10 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    CHECK(ran == 1);
    CHECK(shared == 2);
  }
}
