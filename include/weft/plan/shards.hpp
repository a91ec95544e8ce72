// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the data wrappers keep, gather and reduce, as takers of memory: DataParallel's buckets, and the flat units of
// FullyShardedDataParallel (parallel/shards.hpp) in its own order. Of the first data rank, which never keeps less than others.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include <weft/plan/ledger.hpp>
#include <weft/plan/memory.hpp>

namespace weft::plan {

/// Parameters that are gathered and reduced together, over so many data ranks.
struct Group {
  std::vector<std::size_t> parameters;
  std::size_t ranks = 1, piece = 0;
  Block values, gradients, leaving, sum;
  bool reduced = false;
};

class DataShards {
 public:
  DataShards(const StepLayout& layout, Ledger& ledger) : layout_(layout), bytes_(element_bytes(layout.precision, false)), ledger_(&ledger) {}

  Group* add(std::vector<std::size_t> parameters, std::size_t ranks) {
    groups_.push_back(std::make_unique<Group>());
    groups_.back()->parameters = std::move(parameters);
    groups_.back()->ranks = ranks;
    return groups_.back().get();
  }

  /// Takes what lives between steps; returns it by kind.
  Bytes keep() {
    Bytes kept;
    for (auto& group : groups_) {
      std::size_t elements = 0, first_rank = 0;
      for (const std::size_t size : group->parameters) elements += (size + grain - 1) / grain * grain;
      group->piece = ((elements + group->ranks - 1) / group->ranks + grain - 1) / grain * grain;
      const std::size_t whole = group->piece * group->ranks;
      if (layout_.sharded && !group->parameters.empty()) {
        lasting(kept.parameters, double(layout_.zero == 3 ? group->piece : whole) * bytes_.value);
        lasting(kept.gradients, double(layout_.zero >= 2 ? group->piece : whole) * bytes_.gradient);
      }
      for (const std::size_t size : group->parameters) {
        if (!layout_.sharded) {
          lasting(kept.parameters, double(size) * bytes_.value);
          lasting(kept.gradients, double(size) * bytes_.gradient);
        }
        const std::size_t here = layout_.sharded ? std::min(size, first_rank >= group->piece ? 0 : group->piece - first_rank) : size;
        first_rank += (size + grain - 1) / grain * grain;
        if (here == 0) continue;
        for (double left = bytes_.optimizer; left > 0; left -= 4) lasting(kept.optimizer, double(here) * 4);
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
  /// Before a unit's forward or backward; a unit is the list of its groups.
  void use(const std::vector<Group*>& unit) {
    if (!layout_.sharded) return;
    if (at_ == trace_.size()) trace_.push_back(&unit);
    ++at_;
    for (Group* group : unit) gather(*group);
    if (at_ < trace_.size())
      for (Group* group : *trace_[at_]) gather(*group);
  }
  void leave(const std::vector<Group*>& unit) {
    if (!layout_.sharded || layout_.zero != 3) return;
    for (Group* group : unit)
      if (at_ == trace_.size() || std::find(trace_[at_]->begin(), trace_[at_]->end(), group) == trace_[at_]->end()) drop(*group);
  }
  /// A layer adds to a gradient of the group.
  void open(Group& group) {
    if (!layout_.sharded || layout_.zero < 2 || group.gradients || group.parameters.empty()) return;
    group.gradients = ledger_->take(std::size_t(double(group.piece * group.ranks) * bytes_.gradient), Ledger::Kind::moving);
  }
  /// One unit's reductions are under way at a time; that they last until the next one starts is the worst case.
  void ready(const std::vector<Group*>& owned) {
    if (!layout_.sharded) return;
    settle();
    for (Group* group : owned) {
      if (group->parameters.empty()) continue;
      open(*group);
      group->leaving = std::move(group->gradients);
      group->gradients.reset();
      if (layout_.zero < 2 || group->reduced) group->sum = ledger_->take(std::size_t(double(group->piece) * bytes_.gradient), Ledger::Kind::moving);
      reducing_.push_back(group);
    }
  }
  void settle() {
    for (Group* group : reducing_) {
      group->reduced = true;
      group->sum.reset();
      group->leaving.reset();
    }
    reducing_.clear();
  }
  void finish() {
    settle();
    for (auto& group : groups_) drop(*group);
  }

 private:
  static constexpr std::size_t grain = 32;

  void lasting(double& count, double bytes) {
    kept_.push_back(ledger_->take_lasting(std::size_t(bytes)));
    count += double(lasting_block_bytes(std::size_t(bytes)));
  }
  void gather(Group& group) {
    if (layout_.zero != 3 || group.values || group.parameters.empty()) return;
    group.values = ledger_->take(std::size_t(double(group.piece * group.ranks) * bytes_.value), Ledger::Kind::moving);
  }
  static void drop(Group& group) { group.values.reset(); }

  StepLayout layout_;
  ElementBytes bytes_;
  Ledger* ledger_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Block> kept_;
  std::vector<const std::vector<Group*>*> trace_;
  std::size_t at_ = 0;
  std::vector<Group*> reducing_;
};

}  // namespace weft::plan
