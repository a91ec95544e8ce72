// SPDX-License-Identifier: Apache-2.0
// The first launch of a kernel on a GPU is exclusive; later launches run concurrently.
#include <weft/device/first_launch.hpp>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

namespace {
struct Kernel {};
struct Other {};
}  // namespace

TEST_CASE("first launches of a kernel on several GPUs come one after the other") {
  std::atomic<int> running{0}, most{0}, launches{0};
  std::vector<std::thread> ranks;
  for (int gpu = 0; gpu < 8; ++gpu)
    ranks.emplace_back([&, gpu] {
      weft::detail::first_launch<Kernel>(gpu, [&] {
        const int now = ++running;
        int seen = most.load();
        while (now > seen && !most.compare_exchange_weak(seen, now)) {}
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        --running, ++launches;
      });
    });
  for (auto& rank : ranks) rank.join();
  CHECK(most == 1);
  CHECK(launches == 8);
}

TEST_CASE("later launches run beside each other, and beside other kernels' first") {
  for (int gpu = 0; gpu < 2; ++gpu) weft::detail::first_launch<Other>(gpu, [] {});
  std::atomic<int> inside{0};
  const auto wait_for_the_other = [&] {
    ++inside;
    while (inside < 2) std::this_thread::yield();
  };
  std::thread rank([&] { weft::detail::first_launch<Other>(1, wait_for_the_other); });
  weft::detail::first_launch<Other>(0, wait_for_the_other);
  rank.join();
  CHECK(inside == 2);
}
