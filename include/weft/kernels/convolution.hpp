// SPDX-License-Identifier: Apache-2.0
#pragma once
// Convolutions of images [samples, channels, ...] of one to three dims with weights [out, in / groups, kernel...], and their
// gradients, which are transposed convolutions. On hosts float and bfloat16 use oneDNN. Double, float16, other devices, and
// shapes that oneDNN lacks use the product of patches (detail/convolution_columns.hpp), with equal results up to rounding.
//
//   kernels::convolution_forward(device, shape, x, w, bias, y);   // bias [out] or null

#include <cstddef>
#include <type_traits>

#include <weft/core/scalar.hpp>
#include <weft/kernels/convolution_shape.hpp>
#include <weft/kernels/detail/convolution_columns.hpp>
#include <weft/kernels/detail/convolution_onednn.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/padding.hpp>

namespace weft::kernels {

namespace detail {
template <class T, class Exec>
inline constexpr bool convolution_by_onednn = on_host<Exec> && (std::is_same_v<T, float> || std::is_same_v<T, bfloat16>);

template <class Exec>
void refuse_fixed_order(const Device<Exec>& device) {
  if (device.batch_invariant())
    throw_error<UsageError>(
        {"convolution: numerics.batch_invariant is for products, attention and norms; the order of a "
         "convolution's sums may depend on the number of samples: leave the option out"});
  if (device.sum_terms() != 0)
    throw_error<UsageError>(
        {"convolution: numerics.reproducible_degree is for dense language models; the order of a convolution's sums may depend "
         "on "
         "the number of channels of a rank: leave the option out"});
}

/// Whether the padding is of copies, which images get before they are convolved without padding.
inline bool copies_padding(const ConvolutionShape& s) { return s.mode != PaddingMode::zeros && s.has_padding(); }
/// The convolution of images that have their padding.
inline ConvolutionShape without_padding(ConvolutionShape s) {
  for (std::size_t dim = 0; dim < s.most_dims; ++dim) {
    s.extents[dim] = s.padded(dim);
    s.before[dim] = s.after[dim] = 0;
  }
  s.mode = PaddingMode::zeros;
  return s;
}
template <class T, class Exec>
weft::detail::Buffer allocate_padded(Device<Exec>& device, const ConvolutionShape& s) {
  return device.allocate(s.samples * s.in * s.padded_pixels() * sizeof(T));
}
}  // namespace detail

/// y[n, o, pixel] += bias[o].
template <class T, class Exec>
void add_to_channels(Device<Exec>& device, std::size_t samples, std::size_t channels, std::size_t pixels, const T* bias, T* y) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"convolution", 2 * samples * channels * pixels * sizeof(T)}, samples * channels,
      KOKKOS_LAMBDA(std::size_t row, Team team) {
        const V add = V(accumulate_t<T>(bias[row % channels]));
        team.template sweep<V>(pixels, [&](std::size_t i, std::size_t count) {
          (V::load(y + row * pixels + i, count) + add).store(y + row * pixels + i, count);
        });
      });
}
/// sums[c] = the sum of x[n, c, pixel], in accumulate_t; the order of the terms depends only on the extents.
template <class T, class Exec>
void sum_channels(Device<Exec>& device, std::size_t samples, std::size_t channels, std::size_t pixels, const T* x,
                  accumulate_t<T>* sums) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"convolution", samples * channels * pixels * sizeof(T)}, channels, KOKKOS_LAMBDA(std::size_t c, Team team) {
        accumulate_t<T> total = 0;
        for (std::size_t n = 0; n < samples; ++n) {
          const T* from = x + (n * channels + c) * pixels;
          total +=
              sum(team.template add_up<V>(pixels, [&](std::size_t i, std::size_t count) { return V::load(from + i, count); }));
        }
        if (team.leads()) sums[c] = total;
      });
}

/// y = the convolution of x with w, plus bias [out] unless it is null. The same bits in every run with the same shapes and number
/// of threads. Throws UsageError on a batch-invariant device.
template <class T, class Exec>
void convolution_forward(Device<Exec>& device, const ConvolutionShape& s, const T* x, const T* w, const T* bias, T* y) {
  detail::refuse_fixed_order(device);
  if (s.samples == 0) return;  // oneDNN takes no such shape, and the product of patches memory for one sample
  if (detail::copies_padding(s)) {
    const weft::detail::Buffer padded = detail::allocate_padded<T>(device, s);
    pad_images(device, s, x, static_cast<T*>(padded.get()));
    return convolution_forward<T>(device, detail::without_padding(s), static_cast<const T*>(padded.get()), w, bias, y);
  }
  if constexpr (detail::convolution_by_onednn<T, Exec>)
    if (detail::convolution_onednn(device, s, detail::ConvolutionPass::forward, x, w, static_cast<const T*>(y), bias)) return;
  detail::convolution_forward_columns(device, s, x, w, y);
  if (bias != nullptr) add_to_channels(device, s.samples, s.out, s.out_pixels(), bias, y);
}
/// dx, from dy and w.
template <class T, class Exec>
void convolution_backward_input(Device<Exec>& device, const ConvolutionShape& s, const T* dy, const T* w, T* dx) {
  if (s.samples == 0) return;
  if (detail::copies_padding(s)) {
    const weft::detail::Buffer padded = detail::allocate_padded<T>(device, s);
    convolution_backward_input<T>(device, detail::without_padding(s), dy, w, static_cast<T*>(padded.get()));
    return fold_images(device, s, static_cast<const T*>(padded.get()), dx);
  }
  if constexpr (detail::convolution_by_onednn<T, Exec>)
    if (detail::convolution_onednn(device, s, detail::ConvolutionPass::input, static_cast<const T*>(dx), w, dy,
                                   static_cast<const T*>(nullptr)))
      return;
  detail::convolution_backward_input_columns(device, s, dy, w, dx);
}
/// The transposed convolution: y, images of s.extents, from x, images of its outputs, plus bias [in] unless it is null. Throws
/// UsageError on a batch-invariant device.
template <class T, class Exec>
void convolution_transposed(Device<Exec>& device, const ConvolutionShape& s, const T* x, const T* w, const T* bias, T* y) {
  detail::refuse_fixed_order(device);
  convolution_backward_input(device, s, x, w, y);
  if (bias != nullptr) add_to_channels(device, s.samples, s.in, s.pixels(), bias, y);
}
/// dw in accumulate_t, from x and dy.
template <class T, class Exec>
void convolution_backward_weight(Device<Exec>& device, const ConvolutionShape& s, const T* x, const T* dy, accumulate_t<T>* dw) {
  if (detail::copies_padding(s)) {
    const weft::detail::Buffer padded = detail::allocate_padded<T>(device, s);
    pad_images(device, s, x, static_cast<T*>(padded.get()));
    return convolution_backward_weight<T>(device, detail::without_padding(s), static_cast<const T*>(padded.get()), dy, dw);
  }
  if constexpr (detail::convolution_by_onednn<T, Exec>)
    if (detail::convolution_onednn(device, s, detail::ConvolutionPass::weight, x, static_cast<const accumulate_t<T>*>(dw), dy,
                                   static_cast<const T*>(nullptr)))
      return;
  detail::convolution_backward_weight_columns(device, s, x, dy, dw);
}

}  // namespace weft::kernels
