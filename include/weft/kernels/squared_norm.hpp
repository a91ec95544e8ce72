// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums of squares, of one array or of many at once: the norm of all gradients, for clipping.
//
//   kernels::squared_norm(device, n, gradient, sum);

#include <cstddef>
#include <limits>
#include <span>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/part_table.hpp>

namespace weft::kernels {

/// *out = sum of g[i]^2, in double over blocks of a fixed size: the same bits for any number of threads on a host. NaN and
/// infinity propagate. `out` is in device memory.
template <class T, class Exec>
void squared_norm(Device<Exec>& device, std::size_t n, const T* g, double* out) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  detail::sum_blocks(
      device, {"gradient_norm", n * sizeof(T)}, n, out, KOKKOS_LAMBDA(std::size_t begin, std::size_t end) {
        double total = 0;
        for (std::size_t i = begin; i < end;) {  // short sums in float, long sums in double
          const std::size_t stop = end - i < 1024 ? end : i + 1024;
          V even = V(A(0)), odd = V(A(0));
          for (; i + 2 * V::size <= stop; i += 2 * V::size) {
            const V a = V::load(g + i), b = V::load(g + i + V::size);
            even = even + a * a;
            odd = odd + b * b;
          }
          for (; i < stop; i += V::size) {
            const V a = V::load(g + i, stop - i);
            even = even + a * a;
          }
          total += double(sum(even + odd));
          i = stop;
        }
        return total;
      });
}

/// One of the arrays of squared_norms.
template <class T>
struct NormPart {
  const T* data;
  std::size_t n;
  bool operator==(const NormPart&) const = default;
};

/// out[p] = the sum of the squares of part p, as squared_norm computes it: on devices in two launches for all parts.
template <class T, class Exec>
requires(detail::on_host<Exec>) void squared_norms(Device<Exec>& device, std::span<const NormPart<T>> parts, double* out) {
  for (std::size_t p = 0; p < parts.size(); ++p) squared_norm(device, parts[p].n, parts[p].data, out + p);
}
template <class T, class Exec>
requires(!detail::on_host<Exec>) void squared_norms(Device<Exec>& device, std::span<const NormPart<T>> parts, double* out) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  const auto& table = device.template cache<detail::PartTables<NormPart<T>, 16384>>().of(device, parts);
  const auto list = table.list();
  const weft::detail::Buffer sums = device.allocate((table.pieces() + 1) * sizeof(double));
  double* const partial = static_cast<double*>(sums.get());
  detail::for_each_row(
      device, {"gradient_norm", table.elements() * sizeof(T)}, table.pieces(), KOKKOS_LAMBDA(std::size_t i, Team team) {
        const T* g = list.part_of(i).data + list.begin(i);
        const std::size_t n = list.end(i) - list.begin(i);
        const double total = team.template total<double>((n + V::size - 1) / V::size, [&](std::size_t j, double& part) {
          const V x = V::load(g + j * V::size, n - j * V::size);
          part += double(sum(x * x));
        });
        if (team.leads()) partial[i] = total;
      });
  detail::for_each_row(
      device, {"gradient_norm", (table.pieces() + parts.size()) * sizeof(double)}, parts.size(),
      KOKKOS_LAMBDA(std::size_t p, Team team) {
        const double* from = partial + list.first_of(p);
        const double total = team.template total<double>(list.first_of(p + 1) - list.first_of(p),
                                                         [&](std::size_t i, double& part) { part += from[i]; });
        if (team.leads()) out[p] = total;
      });
}

/// *out = the sum of squares[0] to squares[counted - 1], and of all later squares up to n - 1 that are not finite: another rank
/// counts those sums, but every rank must notice NaN and infinity. Only on devices.
template <class Exec>
requires(!detail::on_host<Exec>) void add_squares(Device<Exec>& device, std::size_t counted, std::size_t n, const double* squares,
                                                  double* out) {
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"gradient_norm", (n + 1) * sizeof(double)}, 1, KOKKOS_LAMBDA(std::size_t, Team team) {
        const double total = team.template total<double>(n, [&](std::size_t i, double& part) {
          const double square = squares[i];
          if (i < counted || !(square <= std::numeric_limits<double>::max())) part += square;
        });
        if (team.leads()) *out = total;
      });
}

}  // namespace weft::kernels
