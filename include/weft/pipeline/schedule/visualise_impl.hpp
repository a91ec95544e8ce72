// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/schedule/visualise.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/core/json_writer.hpp>
#include <weft/pipeline/schedule/visualise.hpp>

namespace weft::schedule::detail {

/// A number with at most 6 digits and a decimal point in every locale.
WEFT_INLINE std::string decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  std::string result = text;
  std::replace(result.begin(), result.end(), ',', '.');
  return result;
}

/// Dark for the first chunk of a rank, lighter for the later ones.
WEFT_INLINE std::string color(Op what, int chunk, int chunks) {
  const int hue = what == Op::F ? 214 : what == Op::B ? 145 : what == Op::I ? 175 : 35;
  const int light = 42 + (chunks > 1 ? 26 * chunk / (chunks - 1) : 8);
  return "hsl(" + std::to_string(hue) + ",55%," + std::to_string(light) + "%)";
}

/// True if the i-th action and the next one overlap in time: always for a planned pair, for a measured one if its times do.
WEFT_INLINE bool overlaps_next(const Order& order, const Timeline& timeline, std::size_t rank, std::size_t i) {
  const auto &start = timeline.start[rank], &end = timeline.end[rank];
  return order[i].with_next && i + 1 < start.size() && start[i + 1] < end[i];
}

WEFT_INLINE double first_start(const Timeline& timeline) {
  double first = timeline.makespan;
  for (const auto& starts : timeline.start)
    if (!starts.empty()) first = std::min(first, starts.front());
  return first;
}

}  // namespace weft::schedule::detail

namespace weft::schedule {

WEFT_INLINE std::string to_svg(const Table& table, const Timeline& timeline, std::string_view unit) {
  constexpr double row = 30, gap = 6, left = 64, top = 34, bottom = 34;
  const double first = detail::first_start(timeline), length = std::max(timeline.makespan - first, 1e-9);
  double shortest = length;
  std::size_t actions = 0;
  for (std::size_t rank = 0; rank < timeline.start.size(); ++rank)
    for (std::size_t i = 0; i < timeline.start[rank].size(); ++i, ++actions)
      shortest = std::min(shortest, timeline.end[rank][i] - timeline.start[rank][i]);
  const double width = std::clamp(22 * length / std::max(shortest, length / 400), 400.0, 12000.0), scale = width / length;
  const double height = top + double(table.ranks) * (row + gap) + bottom;
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + detail::decimal(left + width + 12) + " " +
                    detail::decimal(height) +
                    "\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  const auto box = [&](double x, double y, double w, double h, const std::string& fill, const std::string& label,
                       const std::string& title, std::string_view ink = "white") {
    svg += "<g><title>" + title + "</title><rect x=\"" + detail::decimal(x) + "\" y=\"" + detail::decimal(y) + "\" width=\"" +
           detail::decimal(w) + "\" height=\"" + detail::decimal(h) + "\" fill=\"" + fill +
           "\" stroke=\"white\" stroke-width=\"0.7\"/>";
    if (w >= 7.0 * double(label.size()))
      svg += "<text x=\"" + detail::decimal(x + w / 2) + "\" y=\"" + detail::decimal(y + h / 2 + 4) +
             "\" text-anchor=\"middle\" fill=\"" + std::string(ink) + "\">" + label + "</text>";
    svg += "</g>\n";
  };
  for (int rank = 0; rank < table.ranks; ++rank) {
    const std::size_t r = std::size_t(rank);
    const double y = top + double(rank) * (row + gap);
    svg += "<text x=\"8\" y=\"" + detail::decimal(y + row / 2 + 4) + "\">rank " + std::to_string(rank) + "</text><rect x=\"" +
           detail::decimal(left) + "\" y=\"" + detail::decimal(y) + "\" width=\"" + detail::decimal(width) + "\" height=\"" +
           detail::decimal(row) + "\" fill=\"#eee\"/>\n";
    const Order& order = table.orders[r];
    bool second = false;  // true for the second action of a pair
    for (std::size_t i = 0; i < timeline.start[r].size(); ++i) {
      const Action& a = order[i];
      const double x = left + (timeline.start[r][i] - first) * scale, w = (timeline.end[r][i] - timeline.start[r][i]) * scale;
      const bool first_half = detail::overlaps_next(order, timeline, r, i), half = second || first_half;
      box(x, y + (second ? row / 2 : 0), w, half ? row / 2 : row, detail::color(a.what, a.chunk, table.chunks),
          std::to_string(a.micro),
          to_string(table, rank, a) + " " + detail::decimal(timeline.start[r][i]) + " to " + detail::decimal(timeline.end[r][i]),
          2 * a.chunk >= table.chunks && table.chunks > 1 ? "#222" : "white");
      second = first_half;
    }
  }
  double x = left;
  const auto uses = [&](Op what) {
    return std::any_of(table.orders.begin(), table.orders.end(), [&](const Order& order) {
      return std::any_of(order.begin(), order.end(), [&](const Action& a) { return a.what == what; });
    });
  };
  for (const Op what : {Op::F, Op::B, Op::I, Op::W}) {
    if (!uses(what)) continue;
    box(x, 10, 14, 14, detail::color(what, 0, table.chunks), "", std::string(detail::name_of(what)));
    svg += "<text x=\"" + detail::decimal(x + 19) + "\" y=\"21\">" + std::string(detail::name_of(what)) + "</text>\n";
    x += 118;
  }
  svg += "<text x=\"" + detail::decimal(left) + "\" y=\"" + detail::decimal(height - 12) + "\">" + std::to_string(table.ranks) +
         " ranks, " + std::to_string(table.micro_batches) + " micro-batches, makespan " + detail::decimal(length) +
         std::string(unit) + "; numbers are micro-batches" +
         (table.chunks > 1 ? ", a rank's first stage is dark and its last one light" : "") + "</text>\n</svg>\n";
  return svg;
}

WEFT_INLINE std::string to_trace(const Table& table, const Timeline& timeline, double unit_us) {
  const double first = detail::first_start(timeline);
  weft::detail::JsonWriter json(12);
  json.object().member("displayTimeUnit", "ms").key("traceEvents").array();
  for (int rank = 0; rank < table.ranks; ++rank) {
    const std::size_t r = std::size_t(rank);
    json.line().object().member("ph", "M").member("name", "thread_name").member("pid", 0).member("tid", rank);
    json.key("args").object().member("name", weft::detail::joined({"rank ", rank})).end().end();
    bool second = false;
    for (std::size_t i = 0; i < timeline.start[r].size(); ++i) {
      const Action& a = table.orders[r][i];
      // Nested events would look as if one caused the other, so the members of a pair get one half of the time each.
      const bool overlapped = detail::overlaps_next(table.orders[r], timeline, r, i);
      const double duration = timeline.end[r][i] - timeline.start[r][i], share = second || overlapped ? duration / 2 : duration;
      const double start = timeline.start[r][i] - first + (second ? share : 0);
      json.line().object().member("ph", "X").member("name", to_string(table, rank, a)).member("cat", detail::name_of(a.what));
      json.member("pid", 0).member("tid", rank).member("ts", start * unit_us).member("dur", share * unit_us).key("args").object();
      json.member("stage", table.stage(rank, a.chunk)).member("micro_batch", a.micro);
      if (second || overlapped) json.member("overlapped", true);
      json.end().end();
      second = overlapped;
    }
  }
  return json.line().end().end().text() + '\n';
}

}  // namespace weft::schedule
