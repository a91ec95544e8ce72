// SPDX-License-Identifier: Apache-2.0
#pragma once
// The SVG of a loss curve. Definitions for trace/loss_curve.hpp.

#include <weft/core/inline.hpp>
#include <weft/trace/loss_curve.hpp>

namespace weft::trace::detail {

WEFT_INLINE std::vector<double> ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double step = (rough / power <= 1 ? 1 : rough / power <= 2 ? 2 : rough / power <= 5 ? 5 : 10) * power;
  std::vector<double> out;
  for (double at = std::ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; ++at) out.push_back(at * step);
  return out;
}

WEFT_INLINE std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

WEFT_INLINE std::vector<LossCurve::Point> finite(const std::vector<LossCurve::Point>& points) {
  std::vector<LossCurve::Point> out;
  std::copy_if(points.begin(), points.end(), std::back_inserter(out), [](const auto& p) { return std::isfinite(p.loss); });
  return out;
}

WEFT_INLINE std::vector<LossCurve::Point> smoothed(const std::vector<LossCurve::Point>& points, double window) {
  std::vector<LossCurve::Point> out;
  double sum = 0, weight = 0;
  const double keep = 1 - 1 / std::max(1.0, window);
  for (const auto& p : points) {
    sum = keep * sum + p.loss;
    weight = keep * weight + 1;
    out.push_back({p.step, sum / weight});
  }
  return out;
}

}  // namespace weft::trace::detail

namespace weft::trace {

WEFT_INLINE std::string LossCurve::svg(const std::string& title) const {
  constexpr double width = 820, height = 460, left = 66, right = 24, top = 46, bottom = 52;
  const auto train = detail::finite(training), valid = detail::finite(validation);
  double last = 1, low = INFINITY, high = -INFINITY;
  for (const auto* points : {&train, &valid})
    for (const auto& p : *points) last = std::max(last, p.step), low = std::min(low, p.loss), high = std::max(high, p.loss);
  if (!(low <= high)) low = 0, high = 1;
  const double margin = std::max(0.05 * (high - low), 1e-3);
  low = std::max(0.0, low - margin), high += margin;
  const auto x = [&](double step) { return left + (width - left - right) * step / last; };
  const auto y = [&](double loss) { return top + (height - top - bottom) * (high - loss) / (high - low); };

  char text[256];
  std::string out;
  const auto put = [&](const char* format, auto... values) {
    std::snprintf(text, sizeof text, format, values...);
    out += text;
  };
  put("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" font-family=\"Helvetica, "
      "Arial, sans-serif\" font-size=\"13\" fill=\"#444\">\n",
      width, height, width, height);
  put("<rect width=\"%g\" height=\"%g\" fill=\"#fff\"/>\n", width, height);
  put("<text x=\"%g\" y=\"24\" font-size=\"15\" font-weight=\"bold\" fill=\"#222\">", left);
  out += detail::escaped(title) + "</text>\n";
  for (const double tick : detail::ticks(low, high, 6)) {
    put("<line x1=\"%g\" y1=\"%.2f\" x2=\"%g\" y2=\"%.2f\" stroke=\"#e4e4e4\"/>", left, y(tick), width - right, y(tick));
    put("<text x=\"%g\" y=\"%.2f\" text-anchor=\"end\">%s</text>\n", left - 8, y(tick) + 4.5, detail::plain(tick).c_str());
  }
  for (const double tick : detail::ticks(0, last, 8)) {
    put("<line x1=\"%.2f\" y1=\"%g\" x2=\"%.2f\" y2=\"%g\" stroke=\"#999\"/>", x(tick), height - bottom, x(tick),
        height - bottom + 5);
    put("<text x=\"%.2f\" y=\"%g\" text-anchor=\"middle\">%s</text>\n", x(tick), height - bottom + 20,
        detail::plain(tick).c_str());
  }
  put("<path d=\"M%g %gV%gH%g\" fill=\"none\" stroke=\"#999\"/>\n", left, top, height - bottom, width - right);
  put("<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">step</text>\n", (left + width - right) / 2, height - 12);
  put("<text transform=\"translate(18 %g) rotate(-90)\" text-anchor=\"middle\">", (top + height - bottom) / 2);
  out += detail::escaped(unit) + "</text>\n";

  const auto curve = [&](const std::vector<Point>& points, const char* style) {
    if (points.empty()) return;
    out += "<polyline fill=\"none\" stroke-linejoin=\"round\" points=\"";
    const std::size_t stride = points.size() / 4000 + 1;  // more points than columns would only enlarge the file
    for (std::size_t i = 0; i < points.size(); ++i)
      if (i % stride == 0 || i + 1 == points.size()) put("%.2f,%.2f ", x(points[i].step), y(points[i].loss));
    out += std::string("\" ") + style + "/>\n";
  };
  curve(train, "stroke=\"#1f77b4\" stroke-opacity=\"0.3\" stroke-width=\"1\"");
  curve(detail::smoothed(train, static_cast<double>(train.size()) / 40), "stroke=\"#1f77b4\" stroke-width=\"2\"");
  curve(valid, "stroke=\"#d62728\" stroke-width=\"2\"");
  for (const auto& p : valid) put("<circle cx=\"%.2f\" cy=\"%.2f\" r=\"3\" fill=\"#d62728\"/>\n", x(p.step), y(p.loss));

  double at = top + 8;
  const auto label = [&](const char* colour, const std::string& name, const std::vector<Point>& points) {
    if (points.empty()) return;
    put("<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\" stroke=\"%s\" stroke-width=\"2\"/>", width - right - 216, at,
        width - right - 192, at, colour);
    put("<text x=\"%g\" y=\"%g\">%s %.3f</text>\n", width - right - 184, at + 4.5, name.c_str(), points.back().loss);
    at += 20;
  };
  label("#1f77b4", "training, at the end", detail::smoothed(train, static_cast<double>(train.size()) / 40));
  label("#d62728", "validation, at the end", valid);
  return out + "</svg>\n";
}

}  // namespace weft::trace
