// SPDX-License-Identifier: Apache-2.0
#pragma once
// Schedules as CSV files: one line per rank, one action per cell ("0F3": stage, operation, micro-batch; "(0F3;3B1)": an
// overlapped pair). A table that is read is checked like any other.
//
//   const schedule::Table table = schedule::from_csv(text, "my_schedule.csv");

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/pipeline/schedule/check.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

/// The table as text, one line per rank.
std::string to_csv(const Table& table);

/// Throws UsageError with the line for a cell that is not an action, and LayoutError with the reason if the table does not pass
/// the checker.
Table from_csv(std::string_view text, const std::string& file = "the schedule");

}  // namespace weft::schedule

#ifndef WEFT_COMPILED
#include <weft/pipeline/schedule/csv_impl.hpp>
#endif
