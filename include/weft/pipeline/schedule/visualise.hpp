// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pictures (SVG) and traces (for Perfetto or chrome://tracing) of a schedule. The timeline is a planned one (`simulate`) or one
// that a run has measured (timeline.hpp).
//
//   std::ofstream("1f1b.svg") << schedule::to_svg(table, schedule::simulate(table));

#include <cstdio>
#include <string>
#include <string_view>

#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

namespace detail {

constexpr std::string_view name_of(Op what) {
  return what == Op::F ? "forward" : what == Op::B ? "backward" : what == Op::I ? "input gradient" : "weight gradient";
}

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
