// SPDX-License-Identifier: Apache-2.0
#pragma once
// A lock around the first launch of each kernel on each GPU. Kokkos keeps a table per kernel with an entry per GPU, which the
// first launch fills without a lock. Ranks that are threads of one process with one GPU each would fill and read it concurrently.
// Later launches of a kernel only share the lock.
//
//   first_launch<Body>(gpu, [&] { Kokkos::parallel_for(policy, body); });

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <shared_mutex>

#include <weft/core/standard.hpp>

namespace weft::detail {

template <class Kernel>
struct LaunchTable {
  static inline std::shared_mutex mutex;
  static inline std::array<std::atomic<bool>, 64> known{};
};

template <class Kernel, class F>
void first_launch(int gpu, const F& launch) {
  auto& mutex = LaunchTable<Kernel>::mutex;
  auto& known = LaunchTable<Kernel>::known;
  const bool counted = gpu >= 0 && std::size_t(gpu) < known.size();
  if (counted && known[std::size_t(gpu)].load(std::memory_order_acquire)) {
    std::shared_lock lock(mutex);
    return launch();
  }
  std::unique_lock lock(mutex);
  launch();
  if (counted) known[std::size_t(gpu)].store(true, std::memory_order_release);
}

/// Calls launch(), which launches a kernel of type Kernel on `exec`.
template <class Kernel, class Exec, class F>
void launch_on(const Exec& exec, const F& launch) {
  if constexpr (requires { exec.cuda_device(); }) first_launch<Kernel>(exec.cuda_device(), launch);
  else launch();
}

}  // namespace weft::detail
