// SPDX-License-Identifier: Apache-2.0
// covers: weft/device/device.hpp
// A loop visits each index once, on any thread; a short loop stays on the calling thread, a long one does not.

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include <weft/device/device.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/device/thread_team.hpp>
#include <weft/runtime/guard.hpp>

using namespace weft;

namespace {

/// The number of loops that f() divides among the device's threads.
template <class F>
int loops_shared(DefaultDevice& device, const F& f) {
  const weft::detail::ThreadTeam& team = device.cache<weft::detail::ThreadTeam>();
  const std::uint64_t before = team.loops();
  f();
  return int(team.loops() - before);
}

DefaultDevice::execution_space threads(int count) {
  return runtime::detail::instance_for<DefaultDevice::execution_space>(0, 2, count);
}

void compute_for(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {}
}

}  // namespace

TEST_CASE("each index once, for any number of threads and bodies of any length") {
  for (const int count : {1, 2, 3, 8}) {
    DefaultDevice device(threads(count));
    for (const std::size_t n : {0, 1, 2, 7, 8, 9, 10, 72, 73, 74, 1000, 20000})
      for (const int slow : {0, 1, 5}) {  // every fifth body takes longer than a loop that is too short to divide
        if (slow != 0 && n > 1000) continue;
        std::vector<std::atomic<int>> visits(n);
        weft::detail::for_each_index(device, {}, n, [&](std::size_t i) {
          if (slow != 0 && i % 5 == std::size_t(slow % 5)) compute_for(std::chrono::microseconds(6));
          ++visits[i];
        });
        CAPTURE(count);
        CAPTURE(n);
        std::size_t wrong = 0;
        for (const auto& visited : visits) wrong += visited != 1;
        CHECK(wrong == 0);
      }
  }
}

TEST_CASE("a short loop stays on the calling thread") {
  DefaultDevice device(threads(2));
  constexpr int loops = 1000;
  std::vector<double> x(64);
  const auto caller = std::this_thread::get_id();
  std::atomic<int> elsewhere{0};
  const int count = loops_shared(device, [&] {
    for (int loop = 0; loop < loops; ++loop)
      weft::detail::for_each_index(device, {}, x.size(), [&](std::size_t i) {
        x[i] += 1;
        if (std::this_thread::get_id() != caller) ++elsewhere;
      });
  });
  CHECK(count < loops / 4);  // not 0: a loop that loses its core seems long
  CHECK(elsewhere <= count * int(x.size()));
}

TEST_CASE("a long loop is shared out, and so is one that the caller has cut into pieces") {
  DefaultDevice device(threads(2));
  const auto body = [](std::size_t) { compute_for(std::chrono::microseconds(20)); };
  CHECK(loops_shared(device, [&] { weft::detail::for_each_index(device, {}, 32, body); }) == 1);
  const auto call = [](const void*, std::size_t, std::size_t) {};
  CHECK(loops_shared(device, [&] { weft::detail::share_on_host(device, {call, nullptr, 2}); }) == 1);
  CHECK(loops_shared(device, [&] { weft::detail::share_on_host(device, {call, nullptr, 1}); }) == 0);
  DefaultDevice eager(threads(2)), alone(threads(1));
  eager.share_short_loops();
  CHECK(loops_shared(eager, [&] { weft::detail::for_each_index(eager, {}, 2, [](std::size_t) {}); }) == 1);
  CHECK(loops_shared(alone, [&] { weft::detail::for_each_index(alone, {}, 32, body); }) == 0);
}
