// SPDX-License-Identifier: Apache-2.0
#pragma once
// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019) over the last dim, with separate backward functions for the
// input and the weights. Statistics are in accumulate_t<T>; a second pass over the row computes the variance around the mean. The
// kernels include the sums of a residual connection around the norm, with the same bits as separate kernels: the sum x + branch
// in forward, and the gradient of x's other uses in backward.
//
//   kernels::layer_norm_forward(device, rows, width, x, gain, bias, y, mean, rstd, 1e-5);
//   kernels::layer_norm_sum_forward(device, rows, width, x, branch, gain, bias, sum, y, mean, rstd, 1e-5);   // of x + branch

#include <cstddef>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/rounded.hpp>
#include <weft/kernels/detail/sum_rows.hpp>

namespace weft::kernels {

namespace detail {

/// The input rows of a norm: x.
template <class T>
struct NormedRows {
  static constexpr std::size_t matrices = 1;  // read or written
  const T* x;
  /// The numbers at `at`, in the first pass over a row.
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V first(std::size_t at, std::size_t count) const {
    return V::load(x + at, count);
  }
  /// The row that starts at `at`, in later passes.
  KOKKOS_FORCEINLINE_FUNCTION const T* row(std::size_t at) const { return x + at; }
};
/// The input rows of a norm: x + branch, which the first pass writes to `sum`. Each lane of a team reads back only its own
/// numbers.
template <class T>
struct SummedRows {
  static constexpr std::size_t matrices = 3;
  const T *x, *branch;
  T* sum;
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V first(std::size_t at, std::size_t count) const {
    const V both = rounded<T>(V::load(x + at, count) + V::load(branch + at, count));
    both.store(sum + at, count);
    return both;
  }
  KOKKOS_FORCEINLINE_FUNCTION const T* row(std::size_t at) const { return sum + at; }
};

template <class Rows, class T, class Exec>
void layer_norm_rows(Device<Exec>& device, std::size_t rows, std::size_t width, Rows of, const T* gain, const T* bias, T* y,
                     accumulate_t<T>* mean, accumulate_t<T>* rstd, double epsilon) {
  using V = lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = row_team<Exec>;
  for_each_row(
      device, {"norm", ((Rows::matrices + 1) * rows + 2) * width * sizeof(T) + 2 * rows * sizeof(A)}, rows,
      KOKKOS_LAMBDA(std::size_t row, Team team) {
        const std::size_t at = row * width;
        const V total =
            team.template add_up<V>(width, [&](std::size_t i, std::size_t count) { return of.template first<V>(at + i, count); });
        const T* in = of.row(at);
        const A center = sum(total) / A(width);
        const V squares = team.template add_up<V>(width, [&](std::size_t i, std::size_t count) {
          V d = V::load(in + i, count) - V(center);
          if (count < V::size) d = V::first(d, count, A(0));
          return d * d;
        });
        const A inverse = A(1) / Kokkos::sqrt(sum(squares) / A(width) + A(epsilon));
        team.template sweep<V>(width, [&](std::size_t i, std::size_t count) {
          const V normal = (V::load(in + i, count) - V(center)) * V(inverse);
          (normal * V::load(gain + i, count) + V::load(bias + i, count)).store(y + at + i, count);
        });
        if (!team.leads()) return;
        mean[row] = center;
        rstd[row] = inverse;
      });
}

template <class Rows, class T, class Exec>
void rms_norm_rows(Device<Exec>& device, std::size_t rows, std::size_t width, Rows of, const T* gain, T* y, accumulate_t<T>* rstd,
                   double epsilon) {
  using V = lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = row_team<Exec>;
  for_each_row(
      device, {"norm", ((Rows::matrices + 1) * rows + 1) * width * sizeof(T) + rows * sizeof(A)}, rows,
      KOKKOS_LAMBDA(std::size_t row, Team team) {
        const std::size_t at = row * width;
        const V squares = team.template add_up<V>(width, [&](std::size_t i, std::size_t count) {
          const V v = of.template first<V>(at + i, count);
          return v * v;
        });
        const T* in = of.row(at);
        const A inverse = A(1) / Kokkos::sqrt(sum(squares) / A(width) + A(epsilon));
        team.template sweep<V>(width, [&](std::size_t i, std::size_t count) {
          (V::load(in + i, count) * V(inverse) * V::load(gain + i, count)).store(y + at + i, count);
        });
        if (team.leads()) rstd[row] = inverse;
      });
}

/// The gradient d of a norm's input as it is stored: added to that of the input's other uses, if there are any.
template <class T, class V>
KOKKOS_FORCEINLINE_FUNCTION V with_others(V d, const T* others, std::size_t at, std::size_t count) {
  return others == nullptr ? d : add_apart(V::load(others + at, count), rounded<T>(d));
}

}  // namespace detail

/// y = (x - mean) * rstd * gain + bias; x and y are [rows, width], gain and bias [width], mean and rstd [rows].
template <class T, class Exec>
void layer_norm_forward(Device<Exec>& device, std::size_t rows, std::size_t width, const T* x, const T* gain, const T* bias, T* y,
                        accumulate_t<T>* mean, accumulate_t<T>* rstd, double epsilon) {
  detail::layer_norm_rows(device, rows, width, detail::NormedRows<T>{x}, gain, bias, y, mean, rstd, epsilon);
}

/// sum = x + branch, rounded to T, and layer_norm_forward of `sum`; `sum` may be `x` or `branch`.
template <class T, class Exec>
void layer_norm_sum_forward(Device<Exec>& device, std::size_t rows, std::size_t width, const T* x, const T* branch, const T* gain,
                            const T* bias, T* sum, T* y, accumulate_t<T>* mean, accumulate_t<T>* rstd, double epsilon) {
  detail::layer_norm_rows(device, rows, width, detail::SummedRows<T>{x, branch, sum}, gain, bias, y, mean, rstd, epsilon);
}

/// dx = rstd * (g - mean(g) - n * mean(g * n)) with g = dy * gain and n = (x - mean) * rstd, plus `others` [rows, width], the
/// gradient of x's other uses, unless that is null. The norm's part is rounded to T before the addition. dx may be dy or
/// `others`.
template <class T, class Exec>
void layer_norm_backward_input(Device<Exec>& device, std::size_t rows, std::size_t width, const T* x, const T* gain,
                               const accumulate_t<T>* mean, const accumulate_t<T>* rstd, const T* dy, T* dx,
                               const T* others = nullptr) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"norm", ((others == nullptr ? 3 : 4) * rows + 1) * width * sizeof(T) + 2 * rows * sizeof(A)}, rows,
      KOKKOS_LAMBDA(std::size_t row, Team team) {
        const std::size_t at = row * width;
        const V center = V(mean[row]), inverse = V(rstd[row]);
        const auto sums = team.template add_up<V>(width, [&](std::size_t i, std::size_t count) {
          const V g = V::load(dy + at + i, count) * V::load(gain + i, count);
          return detail::Two<V>(g, g * ((V::load(x + at + i, count) - center) * inverse));
        });
        const V mean_g = V(sum(sums.first) / A(width)), mean_gn = V(sum(sums.second) / A(width));
        team.template sweep<V>(width, [&](std::size_t i, std::size_t count) {
          const V g = V::load(dy + at + i, count) * V::load(gain + i, count);
          const V n = (V::load(x + at + i, count) - center) * inverse;
          const V d = inverse * (g - mean_g - n * mean_gn);
          detail::with_others(d, others, at + i, count).store(dx + at + i, count);
        });
      });
}

namespace detail {
template <class V, class T>
struct LayerNormWeight {
  const T *x, *dy;
  const accumulate_t<T>*mean, *rstd;
  std::size_t width;
  KOKKOS_FORCEINLINE_FUNCTION void operator()(std::size_t row, std::size_t column, std::size_t count, V (&sums)[2]) const {
    const std::size_t at = row * width + column;
    const V d = V::load(dy + at, count);
    sums[0] = sums[0] + d * ((V::load(x + at, count) - V(mean[row])) * V(rstd[row]));
    sums[1] = sums[1] + d;
  }
};
template <class V, class T>
struct RmsNormWeight {
  const T *x, *dy;
  const accumulate_t<T>* rstd;
  std::size_t width;
  KOKKOS_FORCEINLINE_FUNCTION void operator()(std::size_t row, std::size_t column, std::size_t count, V (&sums)[1]) const {
    const std::size_t at = row * width + column;
    sums[0] = sums[0] + V::load(dy + at, count) * (V::load(x + at, count) * V(rstd[row]));
  }
};
}  // namespace detail

/// dgain (+)= sum over rows of dy * n, dbias (+)= sum over rows of dy; both [width].
template <class T, class Exec>
void layer_norm_backward_weight(Device<Exec>& device, std::size_t rows, std::size_t width, const T* x,
                                const accumulate_t<T>* mean, const accumulate_t<T>* rstd, const T* dy, accumulate_t<T>* dgain,
                                accumulate_t<T>* dbias, bool accumulate) {
  using V = detail::lanes_for<Exec, T>;
  detail::sum_rows<V, 2>(device, {"norm", 2 * rows * (width * sizeof(T) + sizeof(accumulate_t<T>))}, rows, width,
                         detail::LayerNormWeight<V, T>{x, dy, mean, rstd, width},
                         detail::Outputs<accumulate_t<T>, 2>{{dgain, dbias}}, accumulate);
}

/// y = x * rstd * gain with rstd = 1 / sqrt(mean(x^2) + epsilon).
template <class T, class Exec>
void rms_norm_forward(Device<Exec>& device, std::size_t rows, std::size_t width, const T* x, const T* gain, T* y,
                      accumulate_t<T>* rstd, double epsilon) {
  detail::rms_norm_rows(device, rows, width, detail::NormedRows<T>{x}, gain, y, rstd, epsilon);
}

/// sum = x + branch, rounded to T, and rms_norm_forward of `sum`; `sum` may be `x` or `branch`.
template <class T, class Exec>
void rms_norm_sum_forward(Device<Exec>& device, std::size_t rows, std::size_t width, const T* x, const T* branch, const T* gain,
                          T* sum, T* y, accumulate_t<T>* rstd, double epsilon) {
  detail::rms_norm_rows(device, rows, width, detail::SummedRows<T>{x, branch, sum}, gain, y, rstd, epsilon);
}

/// dx = rstd * (g - n * mean(g * n)) with g = dy * gain and n = x * rstd, plus `others` as for LayerNorm. dx may be dy or
/// `others`.
template <class T, class Exec>
void rms_norm_backward_input(Device<Exec>& device, std::size_t rows, std::size_t width, const T* x, const T* gain,
                             const accumulate_t<T>* rstd, const T* dy, T* dx, const T* others = nullptr) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"norm", ((others == nullptr ? 3 : 4) * rows + 1) * width * sizeof(T) + rows * sizeof(A)}, rows,
      KOKKOS_LAMBDA(std::size_t row, Team team) {
        const std::size_t at = row * width;
        const V inverse = V(rstd[row]);
        const V sum_gn = team.template add_up<V>(width, [&](std::size_t i, std::size_t count) {
          const V g = V::load(dy + at + i, count) * V::load(gain + i, count);
          return g * (V::load(x + at + i, count) * inverse);
        });
        const V mean_gn = V(sum(sum_gn) / A(width));
        team.template sweep<V>(width, [&](std::size_t i, std::size_t count) {
          const V g = V::load(dy + at + i, count) * V::load(gain + i, count);
          const V d = inverse * (g - V::load(x + at + i, count) * inverse * mean_gn);
          detail::with_others(d, others, at + i, count).store(dx + at + i, count);
        });
      });
}

/// dgain (+)= sum over rows of dy * x * rstd; [width].
template <class T, class Exec>
void rms_norm_backward_weight(Device<Exec>& device, std::size_t rows, std::size_t width, const T* x, const accumulate_t<T>* rstd,
                              const T* dy, accumulate_t<T>* dgain, bool accumulate) {
  using V = detail::lanes_for<Exec, T>;
  detail::sum_rows<V, 1>(device, {"norm", rows * (2 * width * sizeof(T) + sizeof(accumulate_t<T>))}, rows, width,
                         detail::RmsNormWeight<V, T>{x, dy, rstd, width}, detail::Outputs<accumulate_t<T>, 1>{{dgain}},
                         accumulate);
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
