// SPDX-License-Identifier: Apache-2.0
#pragma once
// A loss curve, or that of another number, as an SVG picture, written as plain text: of training (thin: every step; thick:
// smoothed) and of validation over the steps, on a white background, so that documents can include the file unchanged.
//
//   trace::LossCurve curve;
//   curve.training.push_back({step, loss});
//   trace::write_text("loss.svg", curve.svg("GPT, 4 layers"));

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft::trace {

/// The losses of a run by step, for a picture.
struct LossCurve {
  struct Point {
    double step, loss;
  };
  std::vector<Point> training, validation;
  std::string unit = "loss (nats a token)";  ///< of the vertical axis

  /// The picture, 820 x 460. Points that are not finite are left out.
  std::string svg(const std::string& title) const;
};

namespace detail {

/// Round values that divide [low, high] into about `count` parts: steps of 1, 2 or 5 times a power of ten.
std::vector<double> ticks(double low, double high, int count);

inline std::string plain(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", std::abs(number) < 1e-12 ? 0.0 : number);
  return text;
}

std::string escaped(const std::string& text);

std::vector<LossCurve::Point> finite(const std::vector<LossCurve::Point>& points);

/// The exponential mean over about `window` points, with the bias of its start corrected (the same as in Adam).
std::vector<LossCurve::Point> smoothed(const std::vector<LossCurve::Point>& points, double window);

}  // namespace detail

}  // namespace weft::trace

#ifndef WEFT_COMPILED
#include <weft/trace/loss_curve_impl.hpp>
#endif
