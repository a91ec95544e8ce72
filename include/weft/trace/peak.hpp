// SPDX-License-Identifier: Apache-2.0
#pragma once
// The peak speed of weft's matrix products on all ranks at once: the reference for the speed of a training step.
//
//   double flops = trace::matmul_peak<float>(world.device(), world.communicator());   // per second, all ranks together

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/comm/run_options.hpp>
#include <weft/comm/this_host.hpp>
#include <weft/core/scalar.hpp>
#include <weft/device/device.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/matmul.hpp>

namespace weft::trace {

namespace detail {

/// True if this rank has dedicated cores: the first ranks of each computer, as many as its cores can serve. True on all ranks if
/// they compute on devices. Collective.
template <class Exec>
bool has_own_cores(const Device<Exec>& device, const Communicator& ranks) {
  if (!weft::detail::on_host<Exec>) return true;
  std::vector<std::uint64_t> hosts(std::size_t(ranks.size())), mine{comm::this_host()};
  ranks.all_gather(mine, hosts);
  const auto before = std::count(hosts.begin(), hosts.begin() + ranks.rank(), mine[0]);
  return before < std::max(1, runtime::detail::cores() / device.threads());
}

}  // namespace detail

/// FLOP per second in square products of T, summed over all ranks of `ranks`. Collective. Takes the best of five short windows
/// that all ranks begin together, so neither a disturbance nor a shared core can increase the result. If a computer has more
/// ranks than cores, only as many ranks as cores measure. Takes about a third of a second for any number of ranks.
template <weft::detail::Real T, class Exec>
double matmul_peak(Device<Exec>& device, const Communicator& ranks) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t n = weft::detail::on_host<Exec> ? 1024 : 8192, windows = 5;  // smaller products do not fill a GPU
  constexpr double window_s = 0.06;
  if (device.rehearsal() != nullptr) return 0;  // nothing is computed
  const bool measures = detail::has_own_cores(device, ranks);
  weft::detail::Buffer a, b, c;
  const auto multiply = [&] {
    kernels::matmul(device, kernels::Transpose::no, kernels::Transpose::no, n, n, n, static_cast<const T*>(a.get()), n,
                    static_cast<const T*>(b.get()), n, static_cast<T*>(c.get()), n);
    device.exec().fence();
  };
  if (measures) {
    for (weft::detail::Buffer* matrix : {&a, &b, &c}) *matrix = device.allocate(n * n * sizeof(T));
    for (const weft::detail::Buffer* factor : {&a, &b}) kernels::fill<T>(device, n * n, static_cast<T*>(factor->get()), T(1.0f));
    multiply();  // creates the primitive
  }
  std::vector<double> rates(windows);
  for (double& rate : rates) {
    ranks.barrier();
    if (!measures) continue;
    const auto started = Clock::now();
    double seconds = 0;
    std::size_t products = 0;
    while (seconds < window_s) {
      multiply();
      ++products;
      seconds = std::chrono::duration<double>(Clock::now() - started).count();
    }
    rate = 2.0 * double(n) * double(n) * double(n) * double(products) / seconds;
  }
  ranks.all_reduce(rates);
  return *std::max_element(rates.begin(), rates.end());
}

}  // namespace weft::trace
