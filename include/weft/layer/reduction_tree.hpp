// SPDX-License-Identifier: Apache-2.0
#pragma once
// A fixed order of additions that does not depend on who adds: a binary tree over numbered terms. Node (level, index) is the sum
// of the terms [index * 2^level, (index + 1) * 2^level); what lies beyond the last term is left out, not added as zero. A rank
// that has any contiguous range of the terms adds whole nodes and hands the rest on, so the result has the same bits however
// the terms are spread over ranks (ModelOptions::numerics.reproducible).
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

/// Terms [index << level, (index + 1) << level) of a sum, as far as there are terms.
struct TreeNode {
  std::size_t level = 0, index = 0;
  std::size_t begin() const { return index << level; }
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

/// Adds `node` to a list of held nodes and merges what can be merged: `add(into, from)` with places in the list; the sum takes
/// the left one's place and the right one leaves the list. Node is a TreeNode or derives from it.
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

/// The tree over `terms` terms of which each of `ranks` ranks has an equal contiguous part; ranks must divide terms.
class ReductionTree {
 public:
  ReductionTree(std::size_t terms, std::size_t ranks);

  std::size_t terms() const { return terms_; }
  std::size_t ranks() const { return ranks_; }
  /// The first term of a rank.
  std::size_t first(std::size_t rank) const { return terms_ / ranks_ * rank; }
  /// How many nodes each rank is left with.
  std::span<const std::size_t> counts() const { return counts_; }
  /// The nodes of all ranks, in order of their terms.
  std::span<const TreeNode> nodes() const { return nodes_; }
  /// Additions (into, from) of those nodes, by their place, in order; the sum of all ends in place 0.
  std::span<const std::pair<std::size_t, std::size_t>> additions() const { return additions_; }

  /// Is this the order of a plain reduction, one node a rank, added in rank order?
  bool in_rank_order() const;

 private:
  std::size_t terms_, ranks_;
  std::vector<std::size_t> counts_;
  std::vector<TreeNode> nodes_;
  std::vector<std::pair<std::size_t, std::size_t>> additions_;
};

/// Trees for the experts' gradients: of the same terms, where each of fewer ranks has those of several data ranks, neighbours.
class ExpertTrees {
 public:
  /// Throws UsageError where a data rank's terms are with several ranks.
  static void require(std::size_t dp, std::size_t edp);
  /// `require` has been called for these ranks.
  const ReductionTree& over(const ReductionTree& dense, std::size_t ranks);

 private:
  std::vector<std::unique_ptr<ReductionTree>> trees_;
};

/// The sum of numbers in the order of the tree over them. Changes `terms`.
double tree_sum(std::span<double> terms);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/layer/reduction_tree_impl.hpp>
#endif
