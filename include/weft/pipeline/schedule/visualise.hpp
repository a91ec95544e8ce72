// SPDX-License-Identifier: Apache-2.0
#pragma once
// A schedule to look at: a picture (SVG) and a trace for Perfetto or chrome://tracing. The timeline is a planned one
// (`simulate`) or one with the times that a run has measured.
//
//   std::ofstream("1f1b.svg") << schedule::to_svg(table, schedule::simulate(table));

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

namespace detail {

/// A number in at most 6 digits, with a point whatever the locale.
std::string decimal(double value);

constexpr std::string_view name_of(Op what) {
  return what == Op::F ? "forward" : what == Op::B ? "backward" : what == Op::I ? "input gradient" : "weight gradient";
}

/// Dark for the first chunk of a rank, lighter for later ones.
std::string color(Op what, int chunk, int chunks);

/// Members of a pair share their time where they overlap: always as planned; as measured if they did.
bool overlaps_next(const Order& order, const Timeline& timeline, std::size_t rank, std::size_t i);

double first_start(const Timeline& timeline);

}  // namespace detail

/// One row a rank, time to the right, each action with its micro-batch; the members of an overlapped pair one above the other.
/// `unit` follows the makespan.
std::string to_svg(const Table& table, const Timeline& timeline, std::string_view unit = "");

/// Chrome's trace format, one thread a rank; one unit of time becomes `unit_us` microseconds.
std::string to_trace(const Table& table, const Timeline& timeline, double unit_us = 1000);

}  // namespace weft::schedule

#ifndef WEFT_COMPILED
#include <weft/pipeline/schedule/visualise_impl.hpp>
#endif
