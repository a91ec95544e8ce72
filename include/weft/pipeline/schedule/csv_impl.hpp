// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/schedule/csv.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <utility>

#include <weft/core/inline.hpp>
#include <weft/pipeline/schedule/csv.hpp>

namespace weft::schedule {

WEFT_INLINE std::string to_csv(const Table& table) {
  std::string text;
  for (int rank = 0; rank < table.ranks; ++rank) {
    const auto cells = to_strings(table, rank);
    for (std::size_t i = 0; i < cells.size(); ++i) text += (i == 0 ? "" : ",") + cells[i];
    text += '\n';
  }
  return text;
}

WEFT_INLINE Table from_csv(std::string_view text, const std::string& file) {
  struct Cell {
    int stage;
    Action action;
  };
  std::vector<std::vector<Cell>> lines;
  int line_number = 0;
  std::size_t actions = 0;
  const auto refuse = [&](std::string_view cell) {
    return UsageError(
        file + ", line " + std::to_string(line_number) + ": '" + std::string(cell.substr(0, 40)) +
        "' is no action; an action is a stage, one of F B I W, and a micro-batch, such as 0F3, a pair is (0F3;3B1)");
  };
  const auto parse = [&](std::string_view cell, bool with_next) -> Cell {
    const std::size_t at = cell.find_first_of("FBIW");
    if (at == std::string_view::npos) throw refuse(cell);
    const auto number = [&](std::string_view digits) {
      int value = -1;
      const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (problem != std::errc() || end != digits.data() + digits.size() || value < 0 || value > 1 << 20) throw refuse(cell);
      return value;
    };
    const int stage = number(cell.substr(0, at)), micro = number(cell.substr(at + 1));
    if (std::size_t(stage) >= most_csv_stages)
      throw_error<UsageError>(
          {file, ", line ", line_number, ": stage ", stage, ": a schedule has at most ", most_csv_stages, " stages, from 0"});
    return {stage, {static_cast<Op>(cell[at]), 0, micro, with_next}};
  };
  const auto trimmed = [](std::string_view cell) {
    while (!cell.empty() && (cell.front() == ' ' || cell.front() == '\t' || cell.front() == '"')) cell.remove_prefix(1);
    while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\t' || cell.back() == '\r' || cell.back() == '"'))
      cell.remove_suffix(1);
    return cell;
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (trimmed(rest).empty()) continue;
    if (lines.size() == most_csv_ranks)
      throw_error<UsageError>({file, ", line ", line_number, ": a schedule has a line for each rank, at most ", most_csv_ranks});
    auto& line = lines.emplace_back();
    for (std::size_t before = 0;;) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      const std::string_view cell = trimmed(rest.substr(0, comma));
      if (cell.size() > 2 && cell.front() == '(' && cell.back() == ')') {
        const std::string_view pair = cell.substr(1, cell.size() - 2);
        const std::size_t middle = pair.find(';');
        if (middle == std::string_view::npos) throw refuse(cell);
        line.push_back(parse(trimmed(pair.substr(0, middle)), true));
        line.push_back(parse(trimmed(pair.substr(middle + 1)), false));
      } else if (!cell.empty()) {  // an empty cell is idle time and does not affect the order
        line.push_back(parse(cell, false));
      }
      actions += line.size() - std::exchange(before, line.size());
      if (actions > most_csv_actions)
        throw_error<UsageError>({file, ", line ", line_number, ": a schedule has at most ", most_csv_actions, " actions"});
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
  }
  Table table{int(lines.size()), 0, 0, {}, {}};
  for (auto& line : lines) {
    std::vector<int> stages;
    for (const Cell& cell : line) {
      stages.push_back(cell.stage);
      table.micro_batches = std::max(table.micro_batches, cell.action.micro + 1);
    }
    std::sort(stages.begin(), stages.end());
    stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
    table.chunks = std::max(table.chunks, int(stages.size()));
    auto& order = table.orders.emplace_back();
    for (const Cell& cell : line) {
      order.push_back(cell.action);
      order.back().chunk = int(std::lower_bound(stages.begin(), stages.end(), cell.stage) - stages.begin());
    }
    table.stage_of.push_back(std::move(stages));
  }
  require_proven(table, file);
  return table;
}

}  // namespace weft::schedule
