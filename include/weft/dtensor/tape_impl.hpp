// SPDX-License-Identifier: Apache-2.0
#pragma once
// The order of a backward. Definitions for dtensor/tape.hpp.

#include <unordered_set>

#include <weft/core/inline.hpp>
#include <weft/dtensor/tape.hpp>

namespace weft::dtensor::detail {

WEFT_INLINE void run_backward(const std::shared_ptr<Entry>& root) {
  std::vector<std::shared_ptr<Entry>> entries{root};
  std::unordered_set<const Entry*> found{root.get()};
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::vector<std::shared_ptr<Entry>> operands = entries[i]->operands;
    for (const auto& operand : operands)
      if (found.insert(operand.get()).second) entries.push_back(operand);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a->depth > b->depth; });
  for (const auto& entry : entries) {
    entry->propagate();
    entry->release();
  }
}

}  // namespace weft::dtensor::detail
