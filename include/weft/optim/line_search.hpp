// SPDX-License-Identifier: Apache-2.0
#pragma once
// A step length with the strong Wolfe conditions along a direction of descent: the loss falls by a part of what its slope
// promises, and the slope there is flatter (Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6). Lengths are the
// minima of cubic polynomials through two points.
//
//   const auto found = detail::strong_wolfe<Vector>(begin, 1.0, largest_of_direction, 1e-9, evaluate);

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include <weft/core/standard.hpp>

namespace weft::optim::detail {

/// The loss, its slope along the direction, and its gradient at a length of the step.
template <class Vector>
struct LinePoint {
  double at, loss, slope;
  Vector gradient;
};

/// The minimum in [low, high] of the cubic with the losses and slopes of two points; the middle if it has none, or if
/// one of them is not finite.
template <class Vector>
double cubic_minimum(const LinePoint<Vector>& one, const LinePoint<Vector>& other, double low, double high) {
  const auto& [left, right] = one.at <= other.at ? std::tie(one, other) : std::tie(other, one);
  const double width = right.at - left.at;
  const double bend = left.slope + right.slope - 3 * (left.loss - right.loss) / (left.at - right.at);
  const double square = bend * bend - left.slope * right.slope;
  const double root = std::sqrt(square);  // NaN: no minimum
  const double place = right.at - width * ((right.slope + root - bend) / (right.slope - left.slope + 2 * root));
  return std::isfinite(place) ? std::min(std::max(place, low), high) : (low + high) / 2;
}

/// The point that is found, or the lowest after 25 evaluations. `begin` is at 0 with a slope below 0; evaluate(length) returns a
/// LinePoint, with a loss of infinity if something there is not finite. An interval whose step is below `tolerance`, for a
/// direction with this largest element, ends the search.
template <class Vector, class Evaluate>
LinePoint<Vector> strong_wolfe(const LinePoint<Vector>& begin, double length, double largest, double tolerance,
                               Evaluate&& evaluate) {
  constexpr double least_fall = 1e-4, most_slope = 0.9;
  constexpr int most = 25;
  const auto falls = [&](const LinePoint<Vector>& p) { return p.loss <= begin.loss + least_fall * p.at * begin.slope; };
  const auto is_flat = [&](const LinePoint<Vector>& p) { return std::abs(p.slope) <= -most_slope * begin.slope; };
  // Until two points enclose a minimum.
  LinePoint<Vector> before = begin, now = evaluate(length);
  int tried = 0;
  for (; tried < most; ++tried) {
    if (!falls(now) || (tried > 1 && now.loss >= before.loss)) break;
    if (is_flat(now)) return now;
    if (now.slope >= 0) break;
    const double next = cubic_minimum(before, now, now.at + 0.01 * (now.at - before.at), now.at * 10);
    before = std::exchange(now, evaluate(next));
  }
  if (tried == most) before = begin;
  // The interval shrinks; its end `low` has the lower loss.
  LinePoint<Vector> low = std::move(before), high = std::move(now);
  if (high.loss < low.loss) std::swap(low, high);
  for (bool close = false; tried < most && std::abs(high.at - low.at) * largest >= tolerance; ++tried) {
    const double least = std::min(low.at, high.at), greatest = std::max(low.at, high.at), margin = 0.1 * (greatest - least);
    double next = cubic_minimum(low, high, least, greatest);
    if (std::min(greatest - next, next - least) < margin) {  // twice near an end, or at it: away from it
      if (close || next >= greatest || next <= least) {
        next = std::abs(next - greatest) < std::abs(next - least) ? greatest - margin : least + margin;
        close = false;
      } else {
        close = true;
      }
    } else {
      close = false;
    }
    LinePoint<Vector> there = evaluate(next);
    if (!falls(there) || there.loss >= low.loss) {
      high = std::move(there);
      if (high.loss < low.loss) std::swap(low, high);
      continue;
    }
    if (is_flat(there)) return there;
    if (there.slope * (high.at - low.at) >= 0) high = std::move(low);
    low = std::move(there);
  }
  return low;
}

}  // namespace weft::optim::detail
