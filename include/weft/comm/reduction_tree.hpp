// SPDX-License-Identifier: Apache-2.0
#pragma once
// A fixed order of additions that does not depend on the number of ranks: a binary tree over numbered terms. Node (level, index)
// is the sum of the terms [index * 2^level, (index + 1) * 2^level); terms beyond the last are left out, not added as zero. A rank
// with any contiguous range of the terms adds whole nodes and passes the others on, so the result has the same bits for every
// distribution of the terms over ranks (ModelOptions::numerics.reproducible).
//
//   ReductionTree tree(6, 2);   // rank 0 has terms 0 1 2: nodes 0+1 and 2; rank 1 has 3 and 4+5; ((0+1) + (2+3)) + (4+5)

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>

namespace weft::detail {

/// The terms [index << level, (index + 1) << level) of a sum, as far as they exist.
struct TreeNode {
  std::size_t level = 0, index = 0;
  std::size_t begin() const { return index << level; }
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

/// Adds `node` to a list of held nodes and merges siblings. `add(into, from)` adds two nodes of the list; the sum replaces the
/// left one and the right one leaves the list. Node is a TreeNode or derives from it.
template <class Node, class Add>
void insert_node(std::vector<Node>& held, Node node, std::size_t terms, Add&& add) {
  std::size_t at = held.size();
  held.push_back(std::move(node));
  while (std::size_t(1) << held[at].level < terms) {
    const TreeNode sibling{held[at].level, held[at].index ^ 1};
    if (sibling.begin() < terms) {
      const auto found = std::find_if(held.begin(), held.end(),
                                      [&](const Node& other) { return static_cast<const TreeNode&>(other) == sibling; });
      if (found == held.end()) return;
      std::size_t other = std::size_t(found - held.begin());
      if (held[other].index < held[at].index) std::swap(other, at);
      add(held[at], held[other]);
      held.erase(held.begin() + std::ptrdiff_t(other));
      if (other < at) --at;
    }
    ++held[at].level;
    held[at].index /= 2;
  }
}

/// The tree over `terms` terms, of which each of `ranks` ranks has an equal contiguous part; ranks must divide terms.
class ReductionTree {
 public:
  ReductionTree(std::size_t terms, std::size_t ranks);

  std::size_t terms() const { return terms_; }
  std::size_t ranks() const { return ranks_; }
  /// The first term of a rank.
  std::size_t first(std::size_t rank) const { return terms_ / ranks_ * rank; }
  /// The number of nodes that each rank is left with.
  std::span<const std::size_t> counts() const { return counts_; }
  /// The nodes of all ranks, in order of their terms.
  std::span<const TreeNode> nodes() const { return nodes_; }
  /// The additions (into, from) of these nodes by index, in order; the total ends at index 0.
  std::span<const std::pair<std::size_t, std::size_t>> additions() const { return additions_; }

  /// Whether this is the order of a plain reduction: one node for each rank, added in rank order.
  bool in_rank_order() const;

 private:
  std::size_t terms_, ranks_;
  std::vector<std::size_t> counts_;
  std::vector<TreeNode> nodes_;
  std::vector<std::pair<std::size_t, std::size_t>> additions_;
};

/// Trees for the gradients of experts: over the same terms, but over fewer ranks, each with the terms of several neighbouring
/// data ranks.
class ExpertTrees {
 public:
  /// Throws UsageError if a data rank's terms are on several ranks.
  static void require(std::size_t dp, std::size_t edp);
  /// The tree over `ranks` ranks, for which `require` was called.
  const ReductionTree& over(const ReductionTree& dense, std::size_t ranks);

 private:
  std::vector<std::unique_ptr<ReductionTree>> trees_;
};

/// The sum of `terms` in the order of their tree. Changes `terms`.
double tree_sum(std::span<double> terms);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/comm/reduction_tree_impl.hpp>
#endif
