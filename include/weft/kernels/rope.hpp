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
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/rope_scaling.hpp>

namespace weft::kernels {

/// The frequencies of rotary positions: the angle of pair d of a head grows by base^(-2 d / head_width), scaled, per token. Plain
/// numbers, which kernels take by value.
struct RopeFrequencies {
  /// `sequence`: the length of the sequences, for dynamic and longrope.
  RopeFrequencies(double base = 10000, const RopeScaling& scaling = {}, std::size_t sequence = 0)
      : base(base),
        factor(scaling.factor),
        low(scaling.low_frequency),
        high(scaling.high_frequency),
        original(double(scaling.original_sequence)),
        magnitude(scaling.magnitude()),
        type(scaling.type),
        whole_pairs(scaling.whole_pairs) {
    const bool is_long = sequence > scaling.original_sequence;
    if (type == RopeScaling::Type::dynamic && is_long) stretch = factor * double(sequence) / original - (factor - 1);
    if (type != RopeScaling::Type::longrope) return;
    const std::vector<double>& factors = is_long ? scaling.long_factors : scaling.short_factors;
    std::copy_n(factors.begin(), std::min(factors.size(), RopeScaling::most_pairs), divisors);
  }
  bool operator==(const RopeFrequencies&) const = default;

  /// In radians per token. Computed in double.
  KOKKOS_FORCEINLINE_FUNCTION double of_pair(std::size_t d, std::size_t head_width) const {
    using Type = RopeScaling::Type;
    const double width = double(head_width);
    const double turned = stretch == 1 ? base : base * Kokkos::pow(stretch, width / (width - 2));
    const double frequency = Kokkos::pow(turned, -2.0 * double(d) / width);
    if (type == Type::none || type == Type::dynamic) return frequency;
    if (type == Type::linear) return frequency / factor;
    if (type == Type::longrope) return frequency / divisors[d];
    const double kept = type == Type::yarn ? kept_of_pair(double(d), width) : kept_of_waves(original * frequency / turn);
    return kept == 1 ? frequency : kept == 0 ? frequency / factor : (1 - kept) * frequency / factor + kept * frequency;
  }

  double base, factor, low, high, original;
  double magnitude;    ///< of cosines and sines
  double stretch = 1;  ///< factor of the base (dynamic)
  RopeScaling::Type type;
  bool whole_pairs;
  double divisors[RopeScaling::most_pairs] = {};  ///< longrope

 private:
  static constexpr double turn = 6.283185307179586;
  // The fraction of a frequency that is not divided.
  KOKKOS_FORCEINLINE_FUNCTION double kept_of_waves(double waves) const {
    return waves > high ? 1 : waves < low ? 0 : (waves - low) / (high - low);
  }
  KOKKOS_FORCEINLINE_FUNCTION double kept_of_pair(double d, double width) const {
    double first = pair_of(high, width), last = pair_of(low, width);
    if (whole_pairs) first = Kokkos::floor(first), last = Kokkos::ceil(last);
    first = first > 0 ? first : 0;
    last = last < width - 1 ? last : width - 1;
    if (first == last) last += 0.001;
    const double passed = (d - first) / (last - first);
    return passed > 1 ? 0 : passed < 0 ? 1 : 1 - passed;
  }
  // The pair with this number of waves in the original sequence.
  KOKKOS_FORCEINLINE_FUNCTION double pair_of(double waves, double width) const {
    return width * Kokkos::log(original / (waves * turn)) / (2 * Kokkos::log(base));
  }
};

namespace detail {

/// The angle of pair d at a position. Computed in double, so large positions keep their phase.
KOKKOS_FORCEINLINE_FUNCTION double rope_angle(std::int32_t position, std::size_t d, std::size_t head_width,
                                              const RopeFrequencies& frequencies) {
  return double(position) * frequencies.of_pair(d, head_width);
}

/// Cosines and sines of all positions so far, cached by the device: computing them again takes as long as a matmul.
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
          values[(p * 2) * half + d] = A(frequencies.magnitude * std::cos(angle));
          values[(p * 2 + 1) * half + d] = A(frequencies.magnitude * std::sin(angle));
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

/// Rotates every head of `in` by the angles of its row's position, times the frequencies' magnitude; `inverse` rotates back,
/// which is the backward. A row of `in` has heads * head_width values and starts `stride` values after the previous row; `out`
/// may be `in`. positions is [rows], each >= 0. head_width is even. Angles are computed in double; sines and
/// cosines are rounded to accumulate_t<T>.
template <class T, class Exec>
requires(detail::on_host<Exec>) void rope(Device<Exec>& device, std::size_t rows, std::size_t heads, std::size_t head_width,
                                          const T* in, std::size_t stride, T* out, std::size_t out_stride,
                                          const std::int32_t* positions, const RopeFrequencies& frequencies, bool inverse) {
  using A = accumulate_t<T>;
  using V = detail::lanes_for<Exec, T>;
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
  const std::size_t half = head_width / 2;
  const RopeFrequencies turns = frequencies;  // a copy for the device lambda
  detail::for_each(
      device, {"rope", rows * (2 * heads * head_width * sizeof(T) + sizeof(std::int32_t))}, rows * half,
      KOKKOS_LAMBDA(std::size_t i) {
        const std::size_t row = i / half, d = i % half;
        const double angle = detail::rope_angle(positions[row], d, head_width, turns);
        const A c = A(turns.magnitude * Kokkos::cos(angle)),
                s = A((inverse ? -turns.magnitude : turns.magnitude) * Kokkos::sin(angle));
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
