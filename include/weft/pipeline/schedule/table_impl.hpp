// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/schedule/table.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

WEFT_INLINE std::string to_string(const Table& table, int rank, Action action) {
  const char what = static_cast<char>(action.what);
  return weft::detail::joined({table.stage(rank, action.chunk), std::string_view(&what, 1), action.micro});
}

WEFT_INLINE std::vector<std::string> to_strings(const Table& table, int rank) {
  std::vector<std::string> texts;
  const Order& order = table.orders[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i].with_next && i + 1 < order.size()) {
      std::string pair(1, '(');
      pair.append(to_string(table, rank, order[i])).append(1, ';').append(to_string(table, rank, order[i + 1])).append(1, ')');
      texts.push_back(std::move(pair));
      ++i;
    } else {
      texts.push_back(to_string(table, rank, order[i]));
    }
  }
  return texts;
}

}  // namespace weft::schedule
