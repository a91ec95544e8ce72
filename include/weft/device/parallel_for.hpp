// SPDX-License-Identifier: Apache-2.0
#pragma once
// A parallel loop over indices. On hosts the body is called through a pointer, so Kokkos' loop is compiled once for each
// execution space, however many loops there are (each further one costs the compiler 30 ms); an execution space with one thread
// runs the loop in the calling thread.
//
//   for_each_index(device, rows, KOKKOS_LAMBDA(std::size_t row) { ... });

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>

#include <weft/core/text.hpp>
#include <weft/device/device.hpp>
#include <weft/device/first_launch.hpp>

namespace weft::detail {

/// True if Exec's threads and the calling thread see the same memory: loops then run on plain host pointers.
template <class Exec>
inline constexpr bool on_host = Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible&&
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible;

struct HostLoop {
  void (*call)(const void* body, std::size_t begin, std::size_t end);
  const void* body;
  std::size_t count, pieces;
  void operator()(std::size_t piece) const { call(body, count * piece / pieces, count * (piece + 1) / pieces); }
};

/// The number of threads of this instance. With deprecated code enabled, Kokkos 4's exec.concurrency() is the default instance's.
template <class Exec>
int threads_of(const Exec& exec) {
  if constexpr (requires { Exec::concurrency(exec); }) return Exec::concurrency(exec);
  else return exec.concurrency();
}

template <class Exec>
WEFT_OUT_OF_LINE void run_on_host(const Exec& exec, const HostLoop& loop) {
  const std::size_t threads = std::size_t(threads_of(exec));
  if (threads == 1 || loop.count <= 1) return loop.call(loop.body, 0, loop.count);
  HostLoop split = loop;
  split.pieces = std::min(loop.count, threads * 8);
  using Policy = Kokkos::RangePolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>, Kokkos::IndexType<std::size_t>>;
  Kokkos::parallel_for("weft", Policy(exec, std::size_t(0), split.pieces), split);
}

// A policy that passes the functor as a kernel argument. Kokkos sends functors above 512 bytes through constant memory and waits
// for the previous kernel first: impossible in a recorded step, and slow otherwise.
template <class Policy>
auto by_argument(const Policy& policy) {
  return Kokkos::Experimental::require(policy, Kokkos::Experimental::WorkItemProperty::HintLightWeight);
}

/// Calls f(i) for each i of [0, n) on the device's threads.
template <class Exec, class F>
requires(on_host<Exec>) void for_each_index(Device<Exec>& device, std::size_t n, const F& f) {
  const auto call = [](const void* body, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) (*static_cast<const F*>(body))(i);
  };
  if (n != 0) run_on_host(device.exec(), HostLoop{call, &f, n, 1});
}
template <class Exec, class F>
requires(!on_host<Exec>) void for_each_index(Device<Exec>& device, std::size_t n, const F& f) {
  if (n != 0)
    launch_on<F>(device.exec(), [&] {
      Kokkos::parallel_for("weft", by_argument(Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::size_t>>(device.exec(), 0, n)),
                           f);
    });
}

/// Calls f(row, column) for each entry of a matrix. Devices take an entry a thread, hosts long pieces of rows: a matrix may be
/// one long row.
template <class Exec, class F>
requires(on_host<Exec>) void for_each_entry(Device<Exec>& device, std::size_t rows, std::size_t columns, const F& f) {
  constexpr std::size_t piece = 4096;
  const std::size_t pieces = (columns + piece - 1) / piece;
  for_each_index(device, rows * pieces, [=](std::size_t item) {
    const std::size_t row = item / pieces, first = item % pieces * piece, end = std::min(columns, first + piece);
    for (std::size_t column = first; column < end; ++column) f(row, column);
  });
}
template <class Exec, class F>
requires(!on_host<Exec>) void for_each_entry(Device<Exec>& device, std::size_t rows, std::size_t columns, const F& f) {
  for_each_index(
      device, rows * columns, KOKKOS_LAMBDA(const std::size_t i) { f(i / columns, i % columns); });
}

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template void run_on_host(const Kokkos::DefaultHostExecutionSpace&, const HostLoop&);
}  // namespace weft::detail
#endif
