// SPDX-License-Identifier: Apache-2.0
#pragma once
// A parallel loop over indices. On hosts it runs on the device's threads (device/thread_team.hpp), as many as its execution space
// has; the body is called through a pointer, so the loop is compiled once. A short loop runs only on the calling thread: dividing
// it among threads would take longer.
//
//   for_each_index(device, {"norm", 2 * rows * width * sizeof(T)}, rows, KOKKOS_LAMBDA(std::size_t row) { ... });
//
// Each loop declares its kind and its bytes, for rehearsals (device/rehearsal.hpp).

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>

#include <weft/core/text.hpp>
#include <weft/device/device.hpp>
#include <weft/device/first_launch.hpp>
#include <weft/device/region.hpp>
#include <weft/device/thread_team.hpp>

namespace weft::detail {

/// True if Exec's threads and the calling thread share memory: loops then run on plain host pointers.
template <class Exec>
inline constexpr bool on_host = Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible&&
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible;

/// A loop over [begin, begin + count).
struct HostLoop {
  void (*call)(const void* body, std::size_t begin, std::size_t end);
  const void* body;
  std::size_t count;
  std::size_t begin = 0, pieces = 1;
  void operator()(std::size_t piece) const { call(body, begin + count * piece / pieces, begin + count * (piece + 1) / pieces); }
};

template <class Exec>
void run_on_team(Device<Exec>& device, const TeamLoop& loop) {
  device.template cache<ThreadTeam>().run(std::size_t(device.threads()), loop);
}

/// Runs the pieces of a loop on the device's threads.
template <class Exec>
WEFT_OUT_OF_LINE void run_pieces(Device<Exec>& device, Traffic traffic, const TeamLoop& loop) {
  if (Rehearsal* const notes = device.rehearsal(); notes != nullptr) [[unlikely]]
    return notes->launched(traffic);
  const ObservedKernel kernel(traffic.kind);
  run_on_team(device, loop);
}

/// Runs the loop on all threads.
template <class Exec>
WEFT_OUT_OF_LINE void share_on_host(Device<Exec>& device, const HostLoop& loop) {
  const std::size_t threads = std::size_t(device.threads());
  if (threads == 1 || loop.count <= 1) return loop.call(loop.body, loop.begin, loop.begin + loop.count);
  HostLoop split = loop;
  split.pieces = std::min(loop.count, threads * 8);
  const auto call = [](const void* body, std::size_t piece, std::size_t) { (*static_cast<const HostLoop*>(body))(piece); };
  run_on_team(device, TeamLoop{call, &split, split.pieces});
}

/// Runs the loop on the calling thread, and divides the rest among all threads once the first part shows that it is worth it: a
/// body's time is unknown before. The thread and the order of bodies do not change results.
template <class Exec>
WEFT_OUT_OF_LINE void run_on_host(Device<Exec>& device, Traffic traffic, const HostLoop& loop) {
  if (Rehearsal* const notes = device.rehearsal(); notes != nullptr) [[unlikely]]
    return notes->launched(traffic);
  const ObservedKernel kernel(traffic.kind);
  if (device.shares_short_loops()) return share_on_host(device, loop);
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double, std::micro> enough_to_judge(0.5), worth_sharing(2);
  if (loop.count <= 1 || device.threads() == 1) return loop.call(loop.body, loop.begin, loop.begin + loop.count);
  HostLoop rest = loop;
  const auto started = Clock::now();
  for (std::size_t part = 1; part < rest.count; part *= 8) {
    loop.call(loop.body, rest.begin, rest.begin + part);
    rest.begin += part;
    rest.count -= part;
    const std::chrono::duration<double, std::micro> taken = Clock::now() - started;
    if (taken < enough_to_judge) continue;
    if (taken * double(rest.count) >= worth_sharing * double(loop.count - rest.count)) return share_on_host(device, rest);
    break;
  }
  loop.call(loop.body, rest.begin, rest.begin + rest.count);
}

// A policy that passes the functor as a kernel argument. Kokkos sends functors above 512 bytes through constant memory and waits
// for the previous kernel first: impossible in a recorded step, and slow otherwise.
template <class Policy>
auto by_argument(const Policy& policy) {
  return Kokkos::Experimental::require(policy, Kokkos::Experimental::WorkItemProperty::HintLightWeight);
}

/// Calls launch(), which launches a kernel of type Kernel with `threads` threads on a device other than a host.
template <class Kernel, class Exec, class F>
void launch_kernel(Device<Exec>& device, Traffic traffic, std::size_t threads, const F& launch) {
  if (Rehearsal* const notes = device.rehearsal(); notes != nullptr) [[unlikely]]
    return notes->launched(traffic, threads);
  launch_on<Kernel>(device.exec(), launch);
}

/// Calls f(i) for each i of [0, n) on the device's threads.
template <class Exec, class F>
requires(on_host<Exec>) void for_each_index(Device<Exec>& device, Traffic traffic, std::size_t n, const F& f) {
  const auto call = [](const void* body, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) (*static_cast<const F*>(body))(i);
  };
  if (n != 0) run_on_host(device, traffic, HostLoop{call, &f, n});
}
template <class Exec, class F>
requires(!on_host<Exec>) void for_each_index(Device<Exec>& device, Traffic traffic, std::size_t n, const F& f) {
  if (n != 0)
    launch_kernel<F>(device, traffic, n, [&] {
      Kokkos::parallel_for(traffic.kind,
                           by_argument(Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::size_t>>(device.exec(), 0, n)), f);
    });
}

/// Calls f(row, column) for each entry of a matrix. Devices use one thread per entry. Hosts use long pieces of rows, since a
/// matrix may be a single long row.
template <class Exec, class F>
requires(on_host<Exec>) void for_each_entry(Device<Exec>& device, Traffic traffic, std::size_t rows, std::size_t columns,
                                            const F& f) {
  constexpr std::size_t piece = 4096;
  const std::size_t pieces = (columns + piece - 1) / piece;
  for_each_index(device, traffic, rows * pieces, [=](std::size_t item) {
    const std::size_t row = item / pieces, first = item % pieces * piece, end = std::min(columns, first + piece);
    for (std::size_t column = first; column < end; ++column) f(row, column);
  });
}
template <class Exec, class F>
requires(!on_host<Exec>) void for_each_entry(Device<Exec>& device, Traffic traffic, std::size_t rows, std::size_t columns,
                                             const F& f) {
  for_each_index(
      device, traffic, rows * columns, KOKKOS_LAMBDA(const std::size_t i) { f(i / columns, i % columns); });
}

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template void run_pieces(Device<Kokkos::DefaultHostExecutionSpace>&, Traffic, const TeamLoop&);
extern template void share_on_host(Device<Kokkos::DefaultHostExecutionSpace>&, const HostLoop&);
extern template void run_on_host(Device<Kokkos::DefaultHostExecutionSpace>&, Traffic, const HostLoop&);
}  // namespace weft::detail
#endif
