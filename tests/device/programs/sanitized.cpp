// SPDX-License-Identifier: Apache-2.0
// The threads of a device under ThreadSanitizer: loops that read other threads' writes of the previous loop, with pauses in
// which workers fall asleep, on more threads than cores, and teams of several ranks at once. Argument: number of seeds (default
// 20; by hand 1000).
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

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

/// Each loop rotates the numbers by one place; returns false if one is in the wrong place.
bool turn(unsigned seed) {
  std::mt19937 engine(seed);
  const std::size_t threads = 2 + seed % 3, n = 64;
  ThreadTeam team;
  std::vector<std::size_t> now(n), next(n), used(threads);
  for (std::size_t i = 0; i < n; ++i) now[i] = i;
  const std::size_t loops = 60;
  for (std::size_t loop = 0; loop < loops; ++loop) {
    const std::size_t pieces = 1 + engine() % n;
    run(team, threads, pieces, [&](std::size_t piece, std::size_t thread) {
      ++used[thread];  // only one thread writes it
      for (std::size_t i = n * piece / pieces; i < n * (piece + 1) / pieces; ++i) next[i] = now[(i + 1) % n];
    });
    now.swap(next);
    if (engine() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(engine() % 400));
    if (engine() % 16 == 0) {
      try {
        run(team, threads, 8, [](std::size_t piece, std::size_t) {
          if (piece % 3 == 1) throw std::runtime_error("piece");
        });
        return false;
      } catch (const std::runtime_error&) {}
    }
  }
  for (std::size_t i = 0; i < n; ++i)
    if (now[i] != (i + loops) % n) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned seeds = argc > 1 ? unsigned(std::atoi(argv[1])) : 20;
  bool right = true;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    bool other = true;
    std::thread rank([&] { other = turn(2 * seed); });
    right = turn(2 * seed + 1) && right;
    rank.join();
    right = other && right;
  }
  std::printf("%u seeds, two teams each: %s\n", seeds, right ? "right" : "wrong");
  return right ? 0 : 1;
}
