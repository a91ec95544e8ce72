// SPDX-License-Identifier: Apache-2.0
#pragma once
// The machine's peak speed in weft's matrix products, on all ranks at once: the reference for the speed of a training step.
//
//   double flops = trace::matmul_peak<float>(world.device(), world.communicator());   // a second, of all ranks together

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/scalar.hpp>
#include <weft/device/device.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/matmul.hpp>

namespace weft::trace {

/// Floating-point operations a second in square products of T, summed over all ranks of `ranks`. Collective. The best of five
/// short windows that all ranks begin together, so that neither a disturbance nor a core shared by ranks can distort it upwards.
/// Takes about a third of a second.
template <weft::detail::Real T, class Exec>
double matmul_peak(Device<Exec>& device, const Communicator& ranks) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t n = weft::detail::on_host<Exec> ? 1024 : 8192, windows = 5;  // a GPU is not busy with less
  constexpr double window_s = 0.06;
  const weft::detail::Buffer a = device.allocate(n * n * sizeof(T)), b = device.allocate(n * n * sizeof(T)),
                             c = device.allocate(n * n * sizeof(T));
  for (const weft::detail::Buffer* x : {&a, &b}) kernels::fill(device, n * n, static_cast<T*>(x->get()), T(1.0f));
  const auto multiply = [&] {
    kernels::matmul(device, kernels::Transpose::no, kernels::Transpose::no, n, n, n, static_cast<const T*>(a.get()), n,
                    static_cast<const T*>(b.get()), n, static_cast<T*>(c.get()), n);
    device.exec().fence();
  };
  multiply();  // makes the primitive
  std::vector<double> rates(windows);
  for (double& rate : rates) {
    ranks.barrier();
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
