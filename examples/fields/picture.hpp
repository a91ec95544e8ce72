// SPDX-License-Identifier: Apache-2.0
#pragma once
// Panels beside each other as one SVG picture, written as plain text on a white background: grids of values, coloured points, and
// predictions over true values.
//
//   Picture picture;
//   picture.grid("predicted", values, 32, 32, {-1, 1});
//   picture.next_row();
//   trace::write_text("fields.svg", picture.svg("U-Net"));

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <map>
#include <span>
#include <string>

#include <weft/trace/loss_curve.hpp>

namespace fields {

/// The values at the two ends of the colours: blue, white in the middle, red.
struct Range {
  double low = -1, high = 1;
};

class Picture {
  static constexpr double side = 190, gap = 20, title_height = 18, top = 36;

 public:
  /// values [rows, columns], the first row on top.
  void grid(const std::string& title, std::span<const double> values, std::size_t rows, std::size_t columns, const Range& range) {
    begin_panel(title);
    std::map<std::string, std::string> cells;  // of each colour, in a path whose unit is a cell
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t column = 0, end = 0; column < columns; column = end) {  // neighbours of one colour are one rectangle
        const std::string colour = colour_of(values[row * columns + column], range);
        for (end = column + 1; end < columns && colour_of(values[row * columns + end], range) == colour;) ++end;
        const std::string width = std::to_string(end - column);
        cells[colour] += "M" + std::to_string(column) + " " + std::to_string(row) + "h" + width + "v1h-" + width + "z";
      }
    append("<g transform='translate(%.2f %.2f) scale(%.5f %.5f)'>\n", left_, upper_, side / double(columns), side / double(rows));
    for (const auto& [colour, path] : cells) body_ += "<path fill='" + colour + "' d='" + path + "'/>\n";
    body_ += "</g>\n";
    end_panel();
  }
  /// Points of the unit square, coloured by their values.
  void points(const std::string& title, std::span<const double> x, std::span<const double> y, std::span<const double> values,
              const Range& range) {
    begin_panel(title);
    for (std::size_t i = 0; i < values.size(); ++i)
      append("<circle cx='%.2f' cy='%.2f' r='5' fill='%s' stroke='#888' stroke-width='0.4'/>\n", left_ + side * x[i],
             upper_ + side * (1 - y[i]), colour_of(values[i], range).c_str());
    end_panel();
  }
  /// Predicted values over true ones; a right prediction lies on the diagonal.
  void compare(const std::string& title, std::span<const double> predicted, std::span<const double> wanted) {
    begin_panel(title);
    const auto ends = std::minmax_element(wanted.begin(), wanted.end());
    const double low = *ends.first, span = std::max(1e-12, *ends.second - low);
    const auto place = [&](double value) { return side * std::clamp((value - low) / span, 0.0, 1.0); };
    append("<line x1='%.2f' y1='%.2f' x2='%.2f' y2='%.2f' stroke='#888'/>\n", left_, upper_ + side, left_ + side, upper_);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      append("<circle cx='%.2f' cy='%.2f' r='2.2' fill='#2060c0' fill-opacity='0.6'/>\n", left_ + place(wanted[i]),
             upper_ + side - place(predicted[i]));
    end_panel();
  }
  void next_row() {
    if (column_ == 0) return;
    column_ = 0;
    ++row_;
  }

  /// The picture, as large as its panels.
  std::string svg(const std::string& title) const {
    const double width = gap + double(std::max<std::size_t>(1, columns_)) * (side + gap),
                 height = top + double(row_ + (column_ > 0 ? 1 : 0)) * (title_height + side + gap);
    char head[400];
    std::snprintf(head, sizeof head,
                  "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' font-family='sans-serif' "
                  "shape-rendering='crispEdges'>\n<rect width='100%%' height='100%%' fill='white'/>\n"
                  "<text x='%.0f' y='22' font-size='15'>",
                  width, height, gap);
    return head + weft::trace::detail::escaped(title) + "</text>\n" + body_ + "</svg>\n";
  }

 private:
  void begin_panel(const std::string& title) {
    left_ = gap + double(column_) * (side + gap);
    upper_ = top + title_height + double(row_) * (title_height + side + gap);
    append("<text x='%.2f' y='%.2f' font-size='12'>", left_, upper_ - 5);
    body_ += weft::trace::detail::escaped(title) + "</text>\n";
  }
  void end_panel() {
    append("<rect x='%.2f' y='%.2f' width='%.0f' height='%.0f' fill='none' stroke='#444'/>\n", left_, upper_, side, side);
    columns_ = std::max(columns_, ++column_);
  }
  static std::string colour_of(double value, const Range& range) {
    constexpr int steps = 40;  // each side of the middle
    const double middle = (range.low + range.high) / 2, part = (value - middle) / (range.high - middle);
    if (!std::isfinite(part)) return "#000000";
    const int step = int(std::lround(std::clamp(part, -1.0, 1.0) * steps)), faded = 255 - std::abs(step) * 200 / steps;
    char text[8];
    if (step >= 0) std::snprintf(text, sizeof text, "#ff%02x%02x", unsigned(faded) & 255, unsigned(faded) & 255);
    else std::snprintf(text, sizeof text, "#%02x%02xff", unsigned(faded) & 255, unsigned(faded) & 255);
    return text;
  }
  void append(const char* format, const auto&... values) {
    char line[300];
    std::snprintf(line, sizeof line, format, values...);
    body_ += line;
  }

  std::string body_;
  std::size_t row_ = 0, column_ = 0, columns_ = 0;
  double left_ = 0, upper_ = 0;
};

}  // namespace fields
