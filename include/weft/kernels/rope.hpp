// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rotary position embedding (Su et al. 2021) in Hugging Face's half-split convention: within a head, value d is paired with d +
// half.
//
//   kernels::rope(device, rows, heads, head_width, q, stride, q, stride, positions, 10000.0, false);

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/rope_scaling.hpp>

namespace weft::kernels {

/// The frequencies of rotary positions: pair d of a head turns by base^(-2 d / head_width), scaled, from token to token.
struct RopeFrequencies {
  RopeFrequencies(double base = 10000, const RopeScaling& scaling = {}) : base(base), scaling(scaling) {}
  double base;
  RopeScaling scaling;
  bool operator==(const RopeFrequencies&) const = default;

  /// In radians a token. Computed in double.
  KOKKOS_FORCEINLINE_FUNCTION double of_pair(std::size_t d, std::size_t head_width) const {
    const double frequency = Kokkos::pow(base, -2.0 * double(d) / double(head_width));
    if (scaling.type == RopeScaling::Type::none) return frequency;
    if (scaling.type == RopeScaling::Type::linear) return frequency / scaling.factor;
    constexpr double turn = 6.283185307179586;
    const double waves = double(scaling.original_sequence) * frequency / turn;
    if (waves > scaling.high_frequency) return frequency;
    if (waves < scaling.low_frequency) return frequency / scaling.factor;
    const double kept = (waves - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency);
    return (1 - kept) * frequency / scaling.factor + kept * frequency;
  }
};

namespace detail {

/// The angle of pair d at a position. Computed in double, so that far positions keep their phase.
KOKKOS_FORCEINLINE_FUNCTION double rope_angle(std::int32_t position, std::size_t d, std::size_t head_width,
                                              const RopeFrequencies& frequencies) {
  return double(position) * frequencies.of_pair(d, head_width);
}

/// Cosines and sines of all positions so far, kept by the device: computing them again costs as much as a matmul.
template <class A>
struct RopeTable {
  RopeFrequencies frequencies{0};
  std::size_t half = 0, positions = 0;
  std::vector<A> values;  // [positions, 2, half]: cosines, sines

  const A* covering(std::size_t wanted, std::size_t wanted_half, const RopeFrequencies& wanted_frequencies) {
    const bool same = wanted_half == half && wanted_frequencies == frequencies;
    if (wanted > positions || !same) {
      positions = same ? std::max(wanted, 2 * positions) : wanted;
      half = wanted_half;
      frequencies = wanted_frequencies;
      values.resize(positions * 2 * half);
      for (std::size_t p = 0; p < positions; ++p)
        for (std::size_t d = 0; d < half; ++d) {
          const double angle = rope_angle(std::int32_t(p), d, 2 * half, frequencies);
          values[(p * 2) * half + d] = A(std::cos(angle));
          values[(p * 2 + 1) * half + d] = A(std::sin(angle));
        }
    }
    return values.data();
  }
};

/// Rotates each head of one row; cosines and sines are [half].
template <class V, class T>
KOKKOS_FORCEINLINE_FUNCTION void rotate_heads(std::size_t heads, std::size_t head_width, const T* in, T* out,
                                              const typename V::value_type* cosines, const typename V::value_type* sines,
                                              bool inverse) {
  const std::size_t half = head_width / 2;
  const V sign = V(typename V::value_type(inverse ? -1 : 1));
  for (std::size_t head = 0; head < heads; ++head) {
    const T* x = in + head * head_width;
    T* y = out + head * head_width;
    sweep<V>(half, [&](std::size_t d, std::size_t count) {
      const V c = V::load(cosines + d, count), s = sign * V::load(sines + d, count);
      const V low = V::load(x + d, count), high = V::load(x + half + d, count);
      (low * c - high * s).store(y + d, count);
      (high * c + low * s).store(y + half + d, count);
    });
  }
}

}  // namespace detail

/// Rotates every head of `in` by the angles of its row's position; `inverse` rotates back, which is the backward. A row of `in`
/// has heads * head_width values and starts `stride` values after the previous row; `out` may be `in`. positions is [rows], each
/// >= 0. Throws ShapeError if head_width is odd. Angles are computed in double, sines and cosines rounded to accumulate_t<T>.
template <class T, class Exec>
requires(detail::on_host<Exec>) void rope(Device<Exec>& device, std::size_t rows, std::size_t heads, std::size_t head_width,
                                          const T* in, std::size_t stride, T* out, std::size_t out_stride,
                                          const std::int32_t* positions, const RopeFrequencies& frequencies, bool inverse) {
  using A = accumulate_t<T>;
  using V = detail::lanes_for<Exec, T>;
  if (head_width % 2 != 0) throw_error<ShapeError>({"rope: head_width(", head_width, ") is odd, values are rotated in pairs"});
  if (Rehearsal* const notes = device.rehearsal(); notes != nullptr) [[unlikely]]
    return notes->launched({"rope", rows * (2 * heads * head_width * sizeof(T) + sizeof(std::int32_t))});
  std::int32_t last = 0;
  for (std::size_t row = 0; row < rows; ++row) last = positions[row] > last ? positions[row] : last;
  const std::size_t half = head_width / 2;
  const A* table = device.template cache<detail::RopeTable<A>>().covering(std::size_t(last) + 1, half, frequencies);
  detail::for_each(
      device, {"rope", rows * (2 * heads * head_width * sizeof(T) + sizeof(std::int32_t))}, rows, [=](std::size_t row) {
        const A* cosines = table + std::size_t(positions[row]) * 2 * half;
        detail::rotate_heads<V>(heads, head_width, in + row * stride, out + row * out_stride, cosines, cosines + half, inverse);
      });
}
template <class T, class Exec>
requires(!detail::on_host<Exec>) void rope(Device<Exec>& device, std::size_t rows, std::size_t heads, std::size_t head_width,
                                           const T* in, std::size_t stride, T* out, std::size_t out_stride,
                                           const std::int32_t* positions, const RopeFrequencies& frequencies, bool inverse) {
  using A = accumulate_t<T>;
  if (head_width % 2 != 0) throw_error<ShapeError>({"rope: head_width(", head_width, ") is odd, values are rotated in pairs"});
  const std::size_t half = head_width / 2;
  const RopeFrequencies turns = frequencies;  // a copy for the device
  detail::for_each(
      device, {"rope", rows * (2 * heads * head_width * sizeof(T) + sizeof(std::int32_t))}, rows * half,
      KOKKOS_LAMBDA(std::size_t i) {
        const std::size_t row = i / half, d = i % half;
        const double angle = detail::rope_angle(positions[row], d, head_width, turns);
        const A c = A(Kokkos::cos(angle)), s = A(inverse ? -Kokkos::sin(angle) : Kokkos::sin(angle));
        for (std::size_t head = 0; head < heads; ++head) {
          const T* x = in + row * stride + head * head_width;
          T* y = out + row * out_stride + head * head_width;
          const A low = A(x[d]), high = A(x[d + half]);
          y[d] = T(low * c - high * s);
          y[d + half] = T(high * c + low * s);
        }
      });
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
