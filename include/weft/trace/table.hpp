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
std::string grouped(double number);

/// 42 as "42 s", 83 as "1:23", 4000 as "1:06:40".
std::string duration(double seconds);

/// Characters of UTF-8 text, counted as one column each.
std::size_t columns(std::string_view text);

/// Rows of text under a header, with columns as wide as their widest cell. Numbers are aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  Table& row(std::vector<std::string> cells) {
    cells.resize(rows_[0].size());
    rows_.push_back(std::move(cells));
    return *this;
  }

  std::string text(std::string_view indent = "  ") const;

 private:
  static bool number(const std::string& cell) {
    return cell.find_first_of("0123456789") != std::string::npos &&
           cell.find_first_not_of("0123456789+-.,%e ") == std::string::npos;
  }
  bool column_of_numbers(std::size_t column) const;

  std::vector<std::vector<std::string>> rows_;  // the header is first
};

}  // namespace weft::trace

#ifndef WEFT_COMPILED
#include <weft/trace/table_impl.hpp>
#endif
