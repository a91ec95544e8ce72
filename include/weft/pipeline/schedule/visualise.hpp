// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pictures (SVG) and traces (for Perfetto or chrome://tracing) of a schedule. The timeline is a planned one (`simulate`) or one
// that a run has measured (timeline.hpp).
//
//   std::ofstream("1f1b.svg") << schedule::to_svg(table, schedule::simulate(table));

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

namespace detail {

/// A number with at most 6 digits and a decimal point in every locale.
std::string decimal(double value);

constexpr std::string_view name_of(Op what) {
  return what == Op::F ? "forward" : what == Op::B ? "backward" : what == Op::I ? "input gradient" : "weight gradient";
}

/// Dark for the first chunk of a rank, lighter for the later ones.
std::string color(Op what, int chunk, int chunks);

/// True if the i-th action and the next one overlap in time: always for a planned pair, for a measured one if its times do.
bool overlaps_next(const Order& order, const Timeline& timeline, std::size_t rank, std::size_t i);

double first_start(const Timeline& timeline);

}  // namespace detail

/// One row per rank, time to the right, each action labelled with its micro-batch; the members of an overlapped pair are drawn
/// one above the other. `unit` is printed after the makespan.
std::string to_svg(const Table& table, const Timeline& timeline, std::string_view unit = "");

/// Chrome's trace format, one thread per rank. One unit of time becomes `unit_us` microseconds.
std::string to_trace(const Table& table, const Timeline& timeline, double unit_us = 1000);

}  // namespace weft::schedule

#ifndef WEFT_COMPILED
#include <weft/pipeline/schedule/visualise_impl.hpp>
#endif
