// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/reduction_tree.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/reduction_tree.hpp>
#include <weft/core/inline.hpp>

namespace weft::detail {

WEFT_INLINE ReductionTree::ReductionTree(std::size_t terms, std::size_t ranks) : terms_(terms), ranks_(ranks) {
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<TreeNode> held;
    for (std::size_t term = first(rank); term < first(rank + 1); ++term)
      insert_node(held, TreeNode{0, term}, terms, [](auto&, auto&) {});
    counts_.push_back(held.size());
    nodes_.insert(nodes_.end(), held.begin(), held.end());
  }
  struct Slot : TreeNode {
    std::size_t slot = 0;
  };
  std::vector<Slot> slots;
  for (std::size_t slot = 0; slot < nodes_.size(); ++slot)
    insert_node(slots, Slot{nodes_[slot], slot}, terms, [&](Slot& into, Slot& from) {
      additions_.push_back({into.slot, from.slot});
    });
}

WEFT_INLINE bool ReductionTree::in_rank_order() const {
  if (nodes_.size() != ranks_) return false;
  for (std::size_t i = 0; i < additions_.size(); ++i)
    if (additions_[i].first != 0 || additions_[i].second != i + 1) return false;
  return true;
}

WEFT_COLD WEFT_INLINE void ExpertTrees::require(std::size_t dp, std::size_t edp) {
  if (dp % edp != 0)
    throw_error<UsageError>({"reproducible: dp(", dp, ") % edp(", edp,
                             ") != 0: a data rank's gradients of an expert are in parts on several ranks of edp; use ep * etp "
                             "that is a multiple of cp * tp"});
}

WEFT_INLINE const ReductionTree& ExpertTrees::over(const ReductionTree& dense, std::size_t ranks) {
  if (ranks == dense.ranks()) return dense;
  for (const auto& tree : trees_)
    if (tree->terms() == dense.terms() && tree->ranks() == ranks) return *tree;
  trees_.push_back(std::make_unique<ReductionTree>(dense.terms(), ranks));
  return *trees_.back();
}

WEFT_INLINE double tree_sum(std::span<double> terms) {
  for (std::size_t step = 1; step < terms.size(); step *= 2)
    for (std::size_t i = 0; i + step < terms.size(); i += 2 * step) terms[i] += terms[i + step];
  return terms.empty() ? 0 : terms[0];
}

}  // namespace weft::detail
