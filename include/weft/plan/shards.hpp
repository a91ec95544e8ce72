// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of the data wrappers: DataParallel's buckets, and the flat parameter groups that FullyShardedDataParallel
// (parallel/fsdp/fully_sharded_hooks.hpp) keeps, gathers and reduces, in its order. For the first data rank, which never keeps
// less than the others.

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <weft/layer/reduction_tree.hpp>
#include <weft/plan/memory.hpp>
#include <weft/plan/memory_tracker.hpp>

namespace weft::plan {

/// Bytes of an element: as layers use it, and as a rank keeps it between steps.
struct KeptBytes {
  double value = 4, gradient = 4;            ///< layers compute with values and add to gradients
  double kept_value = 4, kept_gradient = 4;  ///< stage 3 keeps master copies, stages 1 and 2 rounded sums
  double moments = 8, master = 0;            ///< of the optimizer
};

inline KeptBytes kept_bytes(const StepLayout& layout) {
  const double value = element_bytes(layout.precision).value;
  KeptBytes bytes{value, value, value, value, 2 * value, 0};
  if (value != 2) return bytes;
  const bool wide = layout.sharded && layout.zero == 3 && !layout.offload;
  const bool rounds = layout.sharded && layout.zero < 3 && !layout.float_gradients && !layout.reproducible;
  return {2, 4, wide ? 4.0 : 2.0, rounds ? 2.0 : 4.0, 8, wide ? 0.0 : 4.0};
}

/// Parameters that are gathered and reduced together over `ranks` data ranks.
struct Group {
  std::vector<std::size_t> parameters;
  std::size_t ranks = 1, piece = 0;
  Block values, gradients, leaving, sum, packed, secondary, outgoing, incoming;
  std::vector<Block> nodes;    // further sums of micro-batches (reproducible runs)
  bool gradient_only = false;  // for second uses of parameters
  bool reduced = false;
  std::size_t whole() const { return piece * ranks; }
};

class DataShards {
 public:
  DataShards(const StepLayout& layout, MemoryTracker& tracker) : layout_(layout), bytes_(kept_bytes(layout)), ledger_(&tracker) {}

  Group* add(std::vector<std::size_t> parameters, std::size_t ranks) {
    groups_.push_back(std::make_unique<Group>());
    groups_.back()->parameters = std::move(parameters);
    groups_.back()->ranks = ranks;
    return groups_.back().get();
  }

  /// Takes the memory that lives between steps; returns its bytes by kind.
  Bytes keep() {
    Bytes kept;
    for (auto& group : groups_) {
      std::size_t elements = 0, first_rank = 0;
      for (const std::size_t size : group->parameters) elements += (size + grain - 1) / grain * grain;
      group->piece = ((elements + group->ranks - 1) / group->ranks + grain - 1) / grain * grain;
      if (layout_.sharded && !group->parameters.empty()) {
        if (!stored() && !group->gradient_only)
          lasting(kept.parameters, double(layout_.zero == 3 ? group->piece : group->whole()) * bytes_.kept_value);
        lasting(kept.gradients, double(layout_.zero >= 2 ? group->piece : group->whole()) * bytes_.kept_gradient);
      }
      for (const std::size_t size : group->parameters) {
        if (!layout_.sharded) {
          if (!group->gradient_only) lasting(kept.parameters, double(size) * bytes_.value);
          lasting(kept.gradients, double(size) * bytes_.gradient);
        }
        const std::size_t here =
            layout_.sharded ? std::min(size, first_rank >= group->piece ? 0 : group->piece - first_rank) : size;
        first_rank += (size + grain - 1) / grain * grain;
        if (!group->gradient_only) updated_.push_back(here);
        if (here == 0 || group->gradient_only || layout_.offload) continue;
        for (int moment = 0; moment < 2; ++moment) lasting(kept.optimizer, double(here) * bytes_.moments / 2);
        if (bytes_.master > 0) lasting(kept.optimizer, double(here) * bytes_.master);
      }
    }
    return kept;
  }

  void begin() {
    at_ = 0;
    for (auto& group : groups_) {
      drop(*group);
      group->reduced = false;
    }
  }
  /// Called before a unit's forward or backward; a unit is the list of its groups.
  void use(const std::vector<Group*>& unit) {
    if (!layout_.sharded) return;
    if (at_ == trace_.size()) trace_.push_back(&unit);
    ++at_;
    for (Group* group : unit) gather(*group);
    for (Group* group : unit) wait(*group);
    if (at_ < trace_.size())
      for (Group* group : *trace_[at_]) gather(*group);
  }
  void leave(const std::vector<Group*>& unit) {
    if (!layout_.sharded || layout_.zero != 3) return;
    for (Group* group : unit)
      if (at_ == trace_.size() || std::find(trace_[at_]->begin(), trace_[at_]->end(), group) == trace_[at_]->end()) drop(*group);
  }
  /// Called before a layer adds to a gradient of the group.
  void open(Group& group) {
    if (!layout_.sharded || (layout_.zero < 2 && !rounds()) || group.gradients || group.parameters.empty()) return;
    group.gradients = ledger_->take(std::size_t(double(group.whole()) * bytes_.gradient), MemoryTracker::Kind::moving);
  }
  /// True if gradients are reduced, or rounded, after every micro-batch.
  bool each_micro_batch() const { return layout_.sharded && !layout_.reproducible && (layout_.zero >= 2 || rounds()); }
  double gradient_bytes() const { return bytes_.gradient; }
  /// Starts a unit's reductions. One unit's reductions run at a time; the worst case is that they last until the next unit
  /// starts.
  void ready(const std::vector<Group*>& owned, bool complete) {
    if (!layout_.sharded) return ready_in_buckets(owned);
    settle();
    for (Group* group : owned) {
      if (group->parameters.empty()) continue;
      open(*group);
      group->leaving = std::exchange(group->gradients, nullptr);
      if (layout_.zero < 2 && !complete) {  // rounded in place
        group->leaving.reset();
        continue;
      }
      if (layout_.zero < 2 || group->reduced || rounds())
        group->sum = ledger_->take(std::size_t(double(group->piece) * bytes_.gradient), MemoryTracker::Kind::moving);
      if (layout_.reproducible) exchange(*group, group->piece, group->ranks, group->ranks * layout_.replicate);
      reducing_.push_back(group);
    }
  }
  void settle() {
    for (Group* group : reducing_) {
      group->reduced = true;
      group->sum.reset();
      group->leaving.reset();
      group->outgoing.reset();
      group->incoming.reset();
    }
    reducing_.clear();
  }
  void finish() {
    settle();
    for (auto& [ranks, filling] : filling_)
      if (filling.bytes != 0) launch(filling, ranks);
    filling_.clear();
    under_way_.clear();
    for (auto& group : groups_) {
      drop(*group);
      group->secondary.reset();
    }
  }
  /// The optimizer's step: the memory that it brings to the device for one parameter after the other.
  void update() {
    for (const std::size_t here : updated_) {
      std::vector<Block> lent;
      const auto take = [&](double bytes) {
        if (here != 0 && bytes > 0) lent.push_back(ledger_->take(std::size_t(double(here) * bytes), MemoryTracker::Kind::moving));
      };
      if (rounds()) take(bytes_.gradient);
      if (!layout_.offload) continue;
      for (int moment = 0; moment < 2; ++moment) take(bytes_.moments / 2);
      take(bytes_.master);
      if (stored()) take(bytes_.value);
    }
  }

 private:
  static constexpr std::size_t grain = 32;

  // Ranks exchange the pieces of their tree nodes, unless a plain reduction has the tree's order.
  void exchange(Group& group, std::size_t piece, std::size_t pieces, std::size_t ranks) {
    const std::size_t terms = layout_.micro_batches * layout_.dp;
    const weft::detail::ReductionTree tree(terms, ranks);
    const std::size_t nodes = *std::max_element(tree.counts().begin(), tree.counts().end());
    if (!tree.in_rank_order() || (layout_.sharded && layout_.replicate > 1)) {
      const auto take = [&](std::size_t pieces) {
        return ledger_->take(std::size_t(double(pieces * piece) * bytes_.gradient), MemoryTracker::Kind::moving);
      };
      if (nodes != 1 || pieces != ranks) group.outgoing = take(ranks * nodes);
      group.nodes.clear();  // packed
      group.incoming = take(tree.nodes().size());
    }
    group.nodes.clear();
  }
  // DataParallel's buckets take memory in reproducible runs only, whose exchange is not in place; two buckets are in progress.
  struct Filling {
    std::size_t bytes = 0;
    bool first = true;
    std::vector<Block> nodes;
  };
  void ready_in_buckets(const std::vector<Group*>& owned) {
    if (!layout_.reproducible) return;
    for (Group* group : owned) {
      Filling& filling = filling_[group->ranks];
      for (const std::size_t size : group->parameters) {
        filling.bytes += (std::size_t(double(size) * bytes_.gradient) + 63) / 64 * 64;
        if (filling.bytes >= (filling.first ? std::size_t(1) << 20 : std::size_t(25) << 20)) launch(filling, group->ranks);
      }
      for (Block& node : group->nodes) filling.nodes.push_back(std::move(node));
      group->nodes.clear();
    }
  }
  void launch(Filling& filling, std::size_t ranks) {
    if (under_way_.size() == 2) under_way_.erase(under_way_.begin());
    under_way_.emplace_back().nodes = std::move(filling.nodes);
    if (ranks > 1) exchange(under_way_.back(), std::size_t(double(filling.bytes) / bytes_.gradient) / ranks, ranks, ranks);
    filling = {0, false, {}};
  }

  bool stored() const { return layout_.offload && layout_.sharded && layout_.zero == 3; }
  bool rounds() const { return bytes_.kept_gradient != bytes_.gradient; }
  void lasting(double& count, double bytes) {
    kept_.push_back(ledger_->take_lasting(std::size_t(bytes)));
    count += double(weft::detail::persistent_block_bytes(std::size_t(bytes)));
  }
  void gather(Group& group) {
    if (layout_.zero != 3 || group.values || group.parameters.empty()) return;
    group.values = ledger_->take(std::size_t(double(group.whole()) * bytes_.value), MemoryTracker::Kind::moving);
    if (!layout_.quantised_gather || group.secondary) return;
    const std::size_t integers = (group.piece + 63) / 64 * 64,
                      scales = ((group.piece + 255) / 256 * (bytes_.value == 8 ? 8 : 4) + 63) / 64 * 64;
    group.packed = ledger_->take((integers + scales) * group.ranks, MemoryTracker::Kind::moving);
  }
  void wait(Group& group) {
    group.packed.reset();
    if (layout_.secondary == 0 || group.secondary || !group.values) return;
    const std::size_t elements = group.whole() / layout_.secondary;
    group.secondary = ledger_->take(std::size_t(double(elements) * bytes_.value), MemoryTracker::Kind::moving);
  }
  void drop(Group& group) {
    group.packed.reset();
    group.values.reset();
  }

  StepLayout layout_;
  KeptBytes bytes_;
  MemoryTracker* ledger_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Block> kept_;
  std::vector<std::size_t> updated_;  // elements of each parameter that this rank updates
  std::vector<const std::vector<Group*>*> trace_;
  std::size_t at_ = 0;
  std::vector<Group*> reducing_;
  std::map<std::size_t, Filling> filling_;  // by the number of ranks that reduce the bucket
  std::vector<Group> under_way_;
};

}  // namespace weft::plan
