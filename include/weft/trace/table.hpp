// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tables and numbers formatted for people.
//
//   trace::Table table({"axis", "degree", "shares"});
//   table.row({"dp", "2", "sequences"});
//   std::cout << table.text();

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft::trace {

/// 1234567.0 as "1,234,567" (rounded).
inline std::string grouped(double number) {
  if (!std::isfinite(number)) return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  char digits[64];
  std::snprintf(digits, sizeof digits, "%.0f", number);
  std::string text = digits;
  const std::ptrdiff_t first = text[0] == '-' ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > first; at -= 3) text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

/// 42 as "42 s", 83 as "1:23", 4000 as "1:06:40".
inline std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto all = static_cast<long long>(std::llround(std::min(seconds, 1e9)));
  char text[48];
  if (all < 60) std::snprintf(text, sizeof text, "%lld s", all);
  else if (all < 3600) std::snprintf(text, sizeof text, "%lld:%02lld", all / 60, all % 60);
  else std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", all / 3600, all / 60 % 60, all % 60);
  return text;
}

/// Characters of UTF-8 text, counted as one column each.
inline std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

/// Rows of text under a header, with columns as wide as their widest cell. Numbers are aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  Table& row(std::vector<std::string> cells) {
    cells.resize(rows_[0].size());
    rows_.push_back(std::move(cells));
    return *this;
  }

  std::string text(std::string_view indent = "  ") const {
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

 private:
  static bool number(const std::string& cell) {
    return cell.find_first_of("0123456789") != std::string::npos && cell.find_first_not_of("0123456789+-.,%e ") == std::string::npos;
  }
  bool column_of_numbers(std::size_t column) const {
    return rows_.size() > 1 && std::all_of(rows_.begin() + 1, rows_.end(), [&](const auto& row) { return number(row[column]); });
  }

  std::vector<std::vector<std::string>> rows_;  // the header first
};

}  // namespace weft::trace
