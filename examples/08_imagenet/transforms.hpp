// SPDX-License-Identifier: Apache-2.0
#pragma once
// The transforms of torchvision on pictures: resize, crops, flip, colour jitter and normalisation. Those of training are a pure
// function of (seed, epoch, index of the picture), so that every layout and every resumed run has the same pixels. Results equal
// Pillow's within 1, given the same random numbers.
//
//   normalise(augmented(picture, {.size = 224}, seed, epoch, index), out);   // training; out: floats [3, 224, 224]
//   normalise(centred(picture, {.size = 224, .resize = 256}), out);          // evaluation

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <weft/core/philox.hpp>

#include "picture.hpp"

namespace imagenet {

/// A part of a picture, in pixels.
struct Box {
  std::size_t top = 0, left = 0, height = 0, width = 0;
};

namespace detail {

/// The input pixels of each output pixel of a resized line, and their weights as whole numbers of 2^-22.
struct ResizeWeights {
  struct Window {
    std::size_t first, count, weights;  // place of the window's first weight
  };
  std::vector<Window> windows;
  std::vector<std::int32_t> weights;

  /// A triangle around the centre of each output pixel, as wide as two output pixels, and at least two input pixels.
  ResizeWeights(std::size_t in, std::size_t out) {
    const double scale = double(in) / double(out), reach = std::max(scale, 1.0);
    std::vector<double> triangle;
    for (std::size_t i = 0; i < out; ++i) {
      const double centre = (double(i) + 0.5) * scale;
      const auto first = std::size_t(std::max(centre - reach + 0.5, 0.0)), end = std::min(std::size_t(centre + reach + 0.5), in);
      triangle.clear();
      double sum = 0;
      for (std::size_t x = first; x < end; ++x) {
        triangle.push_back(std::max(0.0, 1 - std::abs((double(x) - centre + 0.5) / reach)));
        sum += triangle.back();
      }
      windows.push_back({first, end - first, weights.size()});
      for (const double part : triangle) weights.push_back(std::int32_t(std::lround(part / sum * double(1 << bits))));
    }
  }
  static constexpr int bits = 22;
  static std::uint8_t rounded(std::int32_t sum) { return std::uint8_t(std::clamp(sum >> bits, 0, 255)); }
};

inline double uniform(std::uint64_t key, std::uint64_t index, double low, double high) {
  return low + (high - low) * double(weft::Philox::uniform(key, index));
}

}  // namespace detail

/// The box of a picture resized to height x width by antialiased bilinear interpolation, as Image.crop(box).resize(size,
/// BILINEAR): columns first, rounded to 8 bits, then rows.
inline Picture resized(const Picture& from, const Box& box, std::size_t height, std::size_t width) {
  const detail::ResizeWeights across(box.width, width), down(box.height, height);
  Picture lines(box.height, width), out(height, width);
  for (std::size_t y = 0; y < box.height; ++y) {
    const std::uint8_t* row = from.at(box.top + y, box.left);
    std::uint8_t* to = lines.at(y, 0);
    for (const auto& window : across.windows) {
      std::int32_t sum[3]{1 << 21, 1 << 21, 1 << 21};
      for (std::size_t i = 0; i < window.count; ++i) {
        const std::int32_t weight = across.weights[window.weights + i];
        for (std::size_t c = 0; c < 3; ++c) sum[c] += weight * row[3 * (window.first + i) + c];
      }
      for (std::size_t c = 0; c < 3; ++c) *to++ = detail::ResizeWeights::rounded(sum[c]);
    }
  }
  std::vector<std::int32_t> sums(3 * width);
  for (std::size_t y = 0; y < height; ++y) {
    const auto& window = down.windows[y];
    std::fill(sums.begin(), sums.end(), 1 << 21);
    for (std::size_t i = 0; i < window.count; ++i) {
      const std::int32_t weight = down.weights[window.weights + i];
      const std::uint8_t* row = lines.at(window.first + i, 0);
      for (std::size_t x = 0; x < 3 * width; ++x) sums[x] += weight * row[x];
    }
    std::uint8_t* to = out.at(y, 0);
    for (std::size_t x = 0; x < 3 * width; ++x) to[x] = detail::ResizeWeights::rounded(sums[x]);
  }
  return out;
}

/// The box of torchvision's RandomResizedCrop: an area of 8 to 100 % of the picture with an aspect ratio of 3/4 to 4/3, and after
/// ten that do not fit the largest one in the middle.
inline Box random_box(std::size_t height, std::size_t width, std::uint64_t key) {
  const double area = double(height) * double(width), low = std::log(3.0 / 4.0), high = std::log(4.0 / 3.0);
  for (std::uint64_t attempt = 0; attempt < 10; ++attempt) {
    const double part = area * detail::uniform(key, 4 * attempt, 0.08, 1),
                 ratio = std::exp(detail::uniform(key, 4 * attempt + 1, low, high));
    const auto wide = std::size_t(std::lround(std::sqrt(part * ratio))),
               high_ = std::size_t(std::lround(std::sqrt(part / ratio)));
    if (wide == 0 || high_ == 0 || wide > width || high_ > height) continue;
    const auto place = [&](std::uint64_t number, std::size_t free) {
      return std::min(free, std::size_t(detail::uniform(key, 4 * attempt + number, 0, double(free + 1))));
    };
    return {place(2, height - high_), place(3, width - wide), high_, wide};
  }
  Box box{0, 0, height, width};
  if (double(width) < 3.0 / 4.0 * double(height)) box.height = std::size_t(std::lround(double(width) / (3.0 / 4.0)));
  else if (double(width) > 4.0 / 3.0 * double(height)) box.width = std::size_t(std::lround(double(height) * (4.0 / 3.0)));
  box.height = std::clamp(box.height, std::size_t(1), height);
  box.width = std::clamp(box.width, std::size_t(1), width);
  box.top = (height - box.height) / 2;
  box.left = (width - box.width) / 2;
  return box;
}

inline void flip(Picture& picture) {
  for (std::size_t y = 0; y < picture.height; ++y)
    for (std::size_t x = 0; x < picture.width / 2; ++x)
      std::swap_ranges(picture.at(y, x), picture.at(y, x) + 3, picture.at(y, picture.width - 1 - x));
}

/// The grey of a colour, in the weights of ITU-R 601.
inline int grey_of(const std::uint8_t* rgb) { return (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16; }

/// other + factor (x - other) for all colours, truncated to [0, 255]; `other` is a function of the pixel.
template <class Other>
void blend(Picture& picture, double factor, Other&& other) {
  const auto by = float(factor);
  for (std::uint8_t* pixel = picture.pixels.data(); pixel != picture.pixels.data() + picture.pixels.size(); pixel += 3) {
    const auto to = float(other(pixel));
    for (int c = 0; c < 3; ++c) pixel[c] = std::uint8_t(std::clamp(to + by * (float(pixel[c]) - to), 0.0f, 255.0f));
  }
}
inline void change_brightness(Picture& picture, double factor) {
  blend(picture, factor, [](const std::uint8_t*) { return 0; });
}
inline void change_saturation(Picture& picture, double factor) { blend(picture, factor, grey_of); }
inline void change_contrast(Picture& picture, double factor) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < picture.pixels.size(); i += 3) sum += std::uint64_t(grey_of(&picture.pixels[i]));
  const int mean = int(double(sum) / double(picture.height * picture.width) + 0.5);
  blend(picture, factor, [mean](const std::uint8_t*) { return mean; });
}
/// Turns the hue by `turns` of the circle, through 8-bit hue, saturation and value.
inline void change_hue(Picture& picture, double turns) {
  const auto shift = std::uint8_t(int(turns * 255));
  for (std::uint8_t* pixel = picture.pixels.data(); pixel != picture.pixels.data() + picture.pixels.size(); pixel += 3) {
    const int most = std::max({pixel[0], pixel[1], pixel[2]}), range = most - std::min({pixel[0], pixel[1], pixel[2]});
    if (range == 0) continue;  // grey has no hue
    // In Pillow's mixture of float and double, whose bits decide on the rounding.
    const float of_most = float(range) / float(most);
    const int saturation = int(double(of_most) * 255.0);
    const float red = float(most - pixel[0]) / float(range), green = float(most - pixel[1]) / float(range),
                blue = float(most - pixel[2]) / float(range);
    const float sixths = pixel[0] == most ? blue - green : pixel[1] == most ? float(2.0 + red - blue) : float(4.0 + green - red);
    const auto circle = float(std::fmod(double(sixths) / 6.0 + 1.0, 1.0));
    const auto hue = std::uint8_t(int(double(circle) * 255.0) + shift);
    const float place = float(double(hue) * 6.0 / 255.0), part = place - std::floor(place),
                strength = float(double(saturation) / 255.0);
    const auto level = [&](double less) { return std::uint8_t(std::clamp(std::lround(double(most) * (1.0 - less)), 0l, 255l)); };
    const std::uint8_t high = std::uint8_t(most), low = level(strength), falls = level(strength * part),
                       rises = level(strength * (1.0 - part));
    const std::uint8_t colours[6][3]{{high, rises, low}, {falls, high, low}, {low, high, rises},
                                     {low, falls, high}, {rises, low, high}, {high, low, falls}};
    std::copy_n(colours[int(place) % 6], 3, pixel);
  }
}

struct TransformOptions {
  std::size_t size = 224;    ///< of the result, height and width
  std::size_t resize = 256;  ///< evaluation: the shorter side before the crop
  /// Strength of the random brightness, contrast and saturation, factors in [1 - x, 1 + x], and of the hue in turns: [-x, x].
  double colour_jitter = 0, hue = 0;
};

/// torchvision's ColorJitter: in random order.
inline void jitter(Picture& picture, const TransformOptions& options, std::uint64_t key) {
  if (options.colour_jitter == 0 && options.hue == 0) return;
  std::array<int, 4> order{0, 1, 2, 3};
  for (std::size_t i = 3; i > 0; --i)
    std::swap(order[i], order[std::min(i, std::size_t(detail::uniform(key, i, 0, double(i + 1))))]);
  for (const int which : order) {
    const double strength = options.colour_jitter,
                 factor = detail::uniform(key, 4 + std::uint64_t(which), std::max(0.0, 1 - strength), 1 + strength);
    if (which == 0 && strength != 0) change_brightness(picture, factor);
    if (which == 1 && strength != 0) change_contrast(picture, factor);
    if (which == 2 && strength != 0) change_saturation(picture, factor);
    if (which == 3 && options.hue != 0) change_hue(picture, detail::uniform(key, 7, -options.hue, options.hue));
  }
}

/// (x / 255 - mean) / deviation of each colour of ImageNet, as planes [3, height, width].
inline void normalise(const Picture& picture, std::span<float> out) {
  static const auto table = [] {
    constexpr float mean[]{0.485f, 0.456f, 0.406f}, deviation[]{0.229f, 0.224f, 0.225f};
    std::array<std::array<float, 256>, 3> values;
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t v = 0; v < 256; ++v) values[c][v] = (float(v) / 255.0f - mean[c]) / deviation[c];
    return values;
  }();
  const std::size_t pixels = picture.height * picture.width;
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t i = 0; i < pixels; ++i) out[c * pixels + i] = table[c][picture.pixels[3 * i + c]];
}

/// A picture of training, before normalisation: a function of the arguments only.
inline Picture augmented(const Picture& picture, const TransformOptions& options, std::uint64_t seed, std::uint64_t epoch,
                         std::uint64_t index) {
  const auto key = [&](std::string_view site) { return weft::key_of(seed, weft::site_of(site), epoch, index); };
  Picture out = resized(picture, random_box(picture.height, picture.width, key("imagenet.box")), options.size, options.size);
  if (weft::Philox::uniform(key("imagenet.flip"), 0) < 0.5f) flip(out);
  jitter(out, options, key("imagenet.jitter"));
  return out;
}
/// A picture of evaluation, before normalisation: torchvision's Resize(resize) and CenterCrop(size).
inline Picture centred(const Picture& picture, const TransformOptions& options) {
  const std::size_t shorter = std::min(picture.height, picture.width);
  const auto side = [&](std::size_t length) { return std::max(options.size, options.resize * length / shorter); };
  const Picture whole = resized(picture, {0, 0, picture.height, picture.width}, side(picture.height), side(picture.width));
  // Half a pixel is rounded to the even place, as in Python.
  const auto place = [&](std::size_t length) { return std::size_t(std::nearbyint(double(length - options.size) / 2)); };
  const std::size_t top = place(whole.height), left = place(whole.width);
  Picture out(options.size, options.size);
  for (std::size_t y = 0; y < options.size; ++y) std::copy_n(whole.at(top + y, left), 3 * options.size, out.at(y, 0));
  return out;
}

}  // namespace imagenet
