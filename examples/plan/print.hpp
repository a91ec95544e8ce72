// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text tables with columns as wide as their widest entry.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace plan {

using Rows = std::vector<std::vector<std::string>>;

inline void print(const Rows& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += i + 1 == row.size() ? row[i] : row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    std::printf("%s\n", line.c_str());
  }
}

}  // namespace plan
