// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of gradients in a reproducible run: the gradient of each micro-batch stays separate until the reduction tree adds it
// to another one (parallel/reproducible/gradient_trees.hpp).

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <weft/layer/reduction_tree.hpp>
#include <weft/plan/memory_tracker.hpp>
#include <weft/plan/shards.hpp>

namespace weft::plan {

/// The first term of the rank that keeps the most separate terms, among ranks that have `count` contiguous terms each.
inline std::size_t worst_first_term(std::size_t terms, std::size_t count) {
  std::size_t worst = 0, most = 0;
  for (std::size_t first = 0; first < terms; first += count) {
    std::vector<weft::detail::TreeNode> held;
    std::size_t kept = 0;
    for (std::size_t term = first; term < first + count; ++term) {
      weft::detail::insert_node(held, weft::detail::TreeNode{0, term}, terms, [](auto&, auto&) {});
      if (term + 1 < first + count) kept += held.size();
    }
    if (kept > most) worst = first;
    most = std::max(most, kept);
  }
  return worst;
}

/// The gradients of one use of a parameter, whose sum lies in a group, on the data rank whose first micro-batch is `first`.
class GradientTree {
 public:
  GradientTree(Group* group, std::size_t elements, std::size_t sources, std::size_t first)
      : group_(group), elements_(elements), sources_(sources), first_(first) {}

  void begin() { held_.clear(); }
  /// Takes room for a micro-batch's gradient of each data rank; the first one of a step uses the group's memory.
  void open(DataShards& shards, MemoryTracker& tracker) {
    shards.open(*group_);
    for (std::size_t source = 0; source < sources_; ++source) {
      leaves_.push_back(held_.empty() && source == 0 ? nullptr
                                                     : tracker.take(std::size_t(double(elements_) * shards.gradient_bytes()),
                                                                    MemoryTracker::Kind::moving));
    }
  }
  /// Called after the layers' backward; `added`: they have added to the gradients.
  void close(std::size_t micro, std::size_t micro_batches, std::size_t terms, bool added) {
    std::vector<Block> leaves = std::exchange(leaves_, {});
    if (!added) return;
    for (std::size_t source = 0; source < sources_; ++source)
      weft::detail::insert_node(held_, Node{{0, first_ + source * micro_batches + micro}, std::move(leaves[source])}, terms,
                                [](Node& into, Node& from) {
                                  if (from.block == nullptr) std::swap(into.block, from.block);
                                });
  }
  /// Called after the last micro-batch: the nodes beside the first one leave with the group.
  void complete() {
    for (std::size_t i = 1; i < held_.size(); ++i) group_->nodes.push_back(std::move(held_[i].block));
    held_.clear();
  }
  Group* group() const { return group_; }

 private:
  struct Node : weft::detail::TreeNode {
    Block block;
  };
  Group* group_;
  std::size_t elements_, sources_, first_;
  std::vector<Block> leaves_;
  std::vector<Node> held_;
};

}  // namespace weft::plan
