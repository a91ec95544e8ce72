// SPDX-License-Identifier: Apache-2.0
#pragma once
// Normalisation of groups of channels within each sample, x [samples, channels, pixels]. A group's channels lie next to each
// other, so its elements are one row, whose sums are those of kernels/batch_norm.hpp.
//
//   kernels::group_norm_forward(device, shape, x, mean, rstd, gain, bias, y);   // mean, rstd [samples, groups]

#include <cstddef>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

struct GroupedChannels {
  std::size_t samples, channels, groups, pixels;
  std::size_t planes() const { return samples * channels; }
  std::size_t rows() const { return samples * groups; }
  /// Elements of a group of one sample.
  std::size_t elements() const { return groups == 0 ? 0 : channels / groups * pixels; }
};

/// out[n, c] = of_group[n, the group of c].
template <class Exec>
void spread_to_channels(Device<Exec>& device, const GroupedChannels& s, const double* of_group, double* out) {
  const std::size_t each = s.groups == 0 ? 1 : s.channels / s.groups;
  detail::for_each(
      device, {"group_norm", 2 * s.planes() * sizeof(double)}, s.planes(),
      KOKKOS_LAMBDA(std::size_t plane) { out[plane] = of_group[plane / each]; });
}

/// y = (x - mean) rstd gain[c] + bias[c]; without a gain and a bias if they are null.
template <class T, class Exec>
void group_norm_forward(Device<Exec>& device, const GroupedChannels& s, const T* x, const double* mean, const double* rstd,
                        const T* gain, const T* bias, T* y) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  const std::size_t each = s.groups == 0 ? 1 : s.channels / s.groups, channels = s.channels, pixels = s.pixels;
  detail::for_each_row(
      device, {"group_norm", 2 * s.planes() * pixels * sizeof(T)}, s.planes(), KOKKOS_LAMBDA(std::size_t p, Team team) {
        const std::size_t c = p % channels;
        const A factor = A(rstd[p / each]);
        const V middle = V(A(mean[p / each])), scale = V(gain == nullptr ? factor : factor * A(gain[c])),
                shift = V(bias == nullptr ? A(0) : A(bias[c]));
        team.template sweep<V>(pixels, [&](std::size_t i, std::size_t count) {
          ((V::load(x + p * pixels + i, count) - middle) * scale + shift).store(y + p * pixels + i, count);
        });
      });
}

/// terms[0, n, g] = share times the sum of gain[c] sums[0, n, c] over a group's channels; terms[1, n, g] that of sums[1, n, c].
/// `share`: one over the elements of a group.
template <class T, class Exec>
void group_norm_terms(Device<Exec>& device, const GroupedChannels& s, double share, const double* sums, const T* gain,
                      double* terms) {
  using A = accumulate_t<T>;
  const std::size_t each = s.groups == 0 ? 1 : s.channels / s.groups, channels = s.channels, rows = s.rows(), planes = s.planes();
  detail::for_each(
      device, {"group_norm", 2 * planes * sizeof(double)}, 2 * rows, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t first = item % rows * each;
        const double* from = sums + item / rows * planes + first;
        double total = 0;
        for (std::size_t i = 0; i < each; ++i)
          total += (gain == nullptr ? 1.0 : double(A(gain[(first + i) % channels]))) * from[i];
        terms[item] = total * share;
      });
}

/// dx = rstd (gain[c] g - terms[0] - (x - mean) rstd terms[1]).
template <class T, class Exec>
void group_norm_backward(Device<Exec>& device, const GroupedChannels& s, const T* x, const double* mean, const double* rstd,
                         const T* gain, const T* g, const double* terms, T* dx) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  const std::size_t each = s.groups == 0 ? 1 : s.channels / s.groups, channels = s.channels, pixels = s.pixels, rows = s.rows();
  detail::for_each_row(
      device, {"group_norm", 3 * s.planes() * pixels * sizeof(T)}, s.planes(), KOKKOS_LAMBDA(std::size_t p, Team team) {
        const std::size_t group = p / each;
        const A factor = A(rstd[group]);
        const V middle = V(A(mean[group])), of_g = V(gain == nullptr ? factor : factor * A(gain[p % channels])),
                first = V(A(rstd[group] * terms[group])), second = V(A(rstd[group] * rstd[group] * terms[rows + group]));
        team.template sweep<V>(pixels, [&](std::size_t i, std::size_t count) {
          const V d = V::load(x + p * pixels + i, count) - middle;
          (V::load(g + p * pixels + i, count) * of_g - first - d * second).store(dx + p * pixels + i, count);
        });
      });
}

}  // namespace weft::kernels
