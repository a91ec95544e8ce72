// SPDX-License-Identifier: Apache-2.0
#pragma once
// Schedules as CSV files: one line per rank, one action per cell ("0F3": stage, operation, micro-batch; "(0F3;3B1)": an
// overlapped pair). A table that is read is checked like any other.
//
//   const schedule::Table table = schedule::from_csv(text, "my_schedule.csv");

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <weft/pipeline/schedule/check.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

/// The table as text, one line per rank.
std::string to_csv(const Table& table);

/// Limits for reading a table: numbers of ranks and stages, and the total number of actions over all ranks.
inline constexpr std::size_t most_csv_ranks = 4096, most_csv_stages = 4096, most_csv_actions = std::size_t(1) << 18;
inline constexpr std::uint64_t most_csv_bytes = std::uint64_t(1) << 24;

/// Throws UsageError with the line for a cell that is not an action and for a table beyond the limits, and LayoutError with the
/// reason if the table does not pass the checker.
Table from_csv(std::string_view text, const std::string& file = "the schedule");

}  // namespace weft::schedule

#ifndef WEFT_COMPILED
#include <weft/pipeline/schedule/csv_impl.hpp>
#endif
