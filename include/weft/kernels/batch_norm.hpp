// SPDX-License-Identifier: Apache-2.0
#pragma once
// Batch normalisation of images [samples, channels, pixels]: the sums of each plane (a channel of a sample) in double, so that
// ranks can add them in the order of the samples, and the two loops over all elements that use them. Single numbers are images of
// one pixel.
//
//   kernels::plane_sums(device, samples * channels, pixels, x, sums);   // sums[n, c]

#include <cstddef>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// sums[p] = the sum of plane p.
template <class T, class Exec>
void plane_sums(Device<Exec>& device, std::size_t planes, std::size_t pixels, const T* x, double* sums) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"batch_norm", planes * (pixels * sizeof(T) + sizeof(double))}, planes, KOKKOS_LAMBDA(std::size_t p, Team team) {
        const accumulate_t<T> total = sum(team.template add_up<V>(
            pixels, [&](std::size_t i, std::size_t count) { return V::load(x + p * pixels + i, count); }));
        if (team.leads()) sums[p] = double(total);
      });
}
/// sums[n, c] = the sum of (x - mean[c])² over a plane.
template <class T, class Exec>
void plane_squares(Device<Exec>& device, std::size_t samples, std::size_t channels, std::size_t pixels, const T* x,
                   const double* mean, double* sums) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"batch_norm", samples * channels * (pixels * sizeof(T) + sizeof(double))}, samples * channels,
      KOKKOS_LAMBDA(std::size_t p, Team team) {
        const V middle = V(A(mean[p % channels]));
        const A total = sum(team.template add_up<V>(pixels, [&](std::size_t i, std::size_t count) {
          const V d = V::load(x + p * pixels + i, count) - middle;
          return V::first(d * d, count, A(0));
        }));
        if (team.leads()) sums[p] = double(total);
      });
}
/// sums[n, 0, c] = the sum of g over a plane, sums[n, 1, c] that of g (x - mean[c]) rstd[c].
template <class T, class Exec>
void plane_gradient_sums(Device<Exec>& device, std::size_t samples, std::size_t channels, std::size_t pixels, const T* x,
                         const double* mean, const double* rstd, const T* g, double* sums) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"batch_norm", samples * channels * 2 * (pixels * sizeof(T) + sizeof(double))}, samples * channels,
      KOKKOS_LAMBDA(std::size_t p, Team team) {
        const std::size_t n = p / channels, c = p % channels;
        const V middle = V(A(mean[c])), factor = V(A(rstd[c]));
        const auto both = team.template add_up<V>(pixels, [&](std::size_t i, std::size_t count) {
          const V dy = V::load(g + p * pixels + i, count);
          return detail::Two<V>(dy, dy * (V::load(x + p * pixels + i, count) - middle) * factor);
        });
        const A first = sum(both.first), second = sum(both.second);
        if (team.leads()) {
          sums[2 * n * channels + c] = double(first);
          sums[(2 * n + 1) * channels + c] = double(second);
        }
      });
}

/// values[i] = 1 / sqrt(values[i] * factor + epsilon).
template <class Exec>
void reciprocal_roots(Device<Exec>& device, std::size_t n, double factor, double epsilon, double* values) {
  detail::for_each(
      device, {"batch_norm", 2 * n * sizeof(double)}, n,
      KOKKOS_LAMBDA(std::size_t i) { values[i] = 1 / Kokkos::sqrt(values[i] * factor + epsilon); });
}

/// y = (x - mean[c]) rstd[c] gain[c] + bias[c].
template <class T, class Exec>
void batch_norm_forward(Device<Exec>& device, std::size_t samples, std::size_t channels, std::size_t pixels, const T* x,
                        const double* mean, const double* rstd, const T* gain, const T* bias, T* y) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"batch_norm", 2 * samples * channels * pixels * sizeof(T)}, samples * channels,
      KOKKOS_LAMBDA(std::size_t p, Team team) {
        const std::size_t c = p % channels;
        const V middle = V(A(mean[c])), factor = V(A(rstd[c]) * A(gain[c])), shift = V(A(bias[c]));
        team.template sweep<V>(pixels, [&](std::size_t i, std::size_t count) {
          ((V::load(x + p * pixels + i, count) - middle) * factor + shift).store(y + p * pixels + i, count);
        });
      });
}
/// dx = gain rstd (g - share sums[0, c] - (x - mean) rstd share sums[1, c]). `share` is one over the number of elements of a
/// channel (0 if the statistics are constants).
template <class T, class Exec>
void batch_norm_backward(Device<Exec>& device, std::size_t samples, std::size_t channels, std::size_t pixels, const T* x,
                         const double* mean, const double* rstd, const T* gain, const T* g, const double* sums, double share,
                         T* dx) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"batch_norm", 3 * samples * channels * pixels * sizeof(T)}, samples * channels,
      KOKKOS_LAMBDA(std::size_t p, Team team) {
        const std::size_t c = p % channels;
        const V middle = V(A(mean[c])), factor = V(A(rstd[c]) * A(gain[c])), first = V(A(sums[c] * share)),
                second = V(A(rstd[c] * sums[channels + c] * share));
        team.template sweep<V>(pixels, [&](std::size_t i, std::size_t count) {
          const V d = V::load(x + p * pixels + i, count) - middle;
          (factor * (V::load(g + p * pixels + i, count) - first - d * second)).store(dx + p * pixels + i, count);
        });
      });
}

}  // namespace weft::kernels
