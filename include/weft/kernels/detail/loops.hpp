// SPDX-License-Identifier: Apache-2.0
#pragma once
// The loops under all kernels. On hosts all of them are one Kokkos loop (tensor/host_loop.hpp), elsewhere a plain parallel_for.
//
//   for_each(device, rows, KOKKOS_LAMBDA(std::size_t row) { ... });

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>

#include <weft/kernels/detail/sweep.hpp>
#include <weft/tensor/device.hpp>
#include <weft/tensor/host_loop.hpp>

namespace weft::kernels::detail {

using weft::detail::HostLoop;
using weft::detail::run_on_host;
using weft::detail::threads_of;

template <class F>
WEFT_FLATTEN inline void call_body(const void* body, std::size_t begin, std::size_t end) {
  const F& f = *static_cast<const F*>(body);
  for (std::size_t i = begin; i < end; ++i) f(i);
}

/// f(i) for each i of [0, n), on the device's threads.
template <class Exec, class F>
requires(on_host<Exec>) void for_each(Device<Exec>& device, std::size_t n, const F& f) {
  if (n != 0) run_on_host(device.exec(), HostLoop{&call_body<F>, &f, n, 1});
}
template <class Exec, class F>
requires(!on_host<Exec>) void for_each(Device<Exec>& device, std::size_t n, const F& f) {
  if (n != 0) Kokkos::parallel_for("weft", Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::size_t>>(device.exec(), 0, n), f);
}

/// f(i, count) over the pieces of [0, n) that fit into V.
template <class V, class Exec, class F>
requires(on_host<Exec>) void for_lanes(Device<Exec>& device, std::size_t n, const F& f) {
  constexpr std::size_t block = 4096;
  for_each(device, (n + block - 1) / block, [=](std::size_t b) {
    const std::size_t first = b * block;
    sweep<V>(std::min(block, n - first), [&](std::size_t i, std::size_t count) { f(first + i, count); });
  });
}
template <class V, class Exec, class F>
requires(!on_host<Exec>) void for_lanes(Device<Exec>& device, std::size_t n, const F& f) {
  for_each(
      device, n, KOKKOS_LAMBDA(std::size_t i) { f(i, 1); });
}

/// *out = sum over [0, n) of f(begin, end), each call on one block of a fixed size, in double: the same bits for any number of
/// threads on hosts.
template <class Exec, class F>
requires(on_host<Exec>) void sum_blocks(Device<Exec>& device, std::size_t n, double* out, const F& f) {
  constexpr std::size_t block = 16384;
  const std::size_t blocks = (n + block - 1) / block;
  const Buffer buffer = device.allocate(blocks * sizeof(double));
  double* partial = static_cast<double*>(buffer.get());
  for_each(device, blocks, [=](std::size_t b) { partial[b] = f(b * block, std::min((b + 1) * block, n)); });
  double total = 0;
  for (std::size_t b = 0; b < blocks; ++b) total += partial[b];
  *out = total;
}
template <class Exec, class F>
requires(!on_host<Exec>) void sum_blocks(Device<Exec>& device, std::size_t n, double* out, const F& f) {
  Kokkos::View<double, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> result(out);
  Kokkos::parallel_reduce(
      "weft", Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::size_t>>(device.exec(), 0, n),
      KOKKOS_LAMBDA(std::size_t i, double& total) { total += f(i, i + 1); }, result);
}

}  // namespace weft::kernels::detail
