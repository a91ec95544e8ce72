// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text tables and number formats. Definitions for trace/table.hpp.

#include <weft/core/inline.hpp>
#include <weft/trace/table.hpp>

namespace weft::trace {

WEFT_INLINE std::string grouped(double number) {
  if (!std::isfinite(number)) return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  char digits[64];
  std::snprintf(digits, sizeof digits, "%.0f", number);
  std::string text = digits;
  const std::ptrdiff_t first = text[0] == '-' ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > first; at -= 3) text.insert(text.begin() + at, ',');
  return text;
}

WEFT_INLINE std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto all = static_cast<long long>(std::llround(std::min(seconds, 1e9)));
  char text[48];
  if (all < 60) std::snprintf(text, sizeof text, "%lld s", all);
  else if (all < 3600) std::snprintf(text, sizeof text, "%lld:%02lld", all / 60, all % 60);
  else std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", all / 3600, all / 60 % 60, all % 60);
  return text;
}

WEFT_INLINE std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

WEFT_INLINE std::string Table::text(std::string_view indent) const {
  std::vector<std::size_t> width(rows_[0].size(), 0);
  for (const auto& row : rows_)
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], columns(row[c]));
  std::string out;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line(indent);
    for (std::size_t c = 0; c < width.size(); ++c) {
      const std::string fill(width[c] - columns(rows_[r][c]), ' ');
      const bool right = r == 0 ? column_of_numbers(c) : number(rows_[r][c]);
      line += (right ? fill + rows_[r][c] : rows_[r][c] + fill) + (c + 1 < width.size() ? "  " : "");
    }
    out += line.erase(line.find_last_not_of(' ') + 1) + '\n';
    if (r != 0) continue;
    out += indent;
    for (std::size_t c = 0; c < width.size(); ++c) out += std::string(width[c], '-') + (c + 1 < width.size() ? "  " : "");
    out += '\n';
  }
  return out;
}

WEFT_INLINE bool Table::column_of_numbers(std::size_t column) const {
  return rows_.size() > 1 && std::all_of(rows_.begin() + 1, rows_.end(), [&](const auto& row) { return number(row[column]); });
}

}  // namespace weft::trace
