// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradient sums of one rank in a reproducible run (ModelOptions::numerics.reproducible). Each micro-batch's gradient is kept
// apart until the tree over the micro-batches of the whole step adds it to another one. A parameter that several
// units use (a tied embedding) has a tree for each use, whether these are on this rank or on several stages; their sums are added
// at the end, after the sum over data ranks.

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <weft/comm/reduction_tree.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/engine/gradient_accumulator.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/kernels/elementwise.hpp>

namespace weft::detail {

// The state of a second use of a parameter: it has a gradient and no value.
inline std::unique_ptr<ParameterState> second_use(const ParameterState& state) {
  ParameterInfo info;
  info.name = state.name();
  info.global = state.global();
  info.local = state.local();
  info.type = state.type();
  info.gradient_type = state.gradient_type();
  info.runs = state.info().runs;
  info.sharded = state.sharded();
  info.replicas = state.info().replicas;
  info.gradient_only = true;
  return std::make_unique<ParameterState>(std::move(info));
}

/// The accumulator's part on one rank; ReproducibleAccumulator adds the sums over data ranks.
template <class Exec>
class GradientTrees : public GradientAccumulator {
 public:
  explicit GradientTrees(Device<Exec>& device) : device_(&device) {}

  bool separates_terms() const override { return true; }
  void find_uses(std::span<Unit* const> units, AllHooks hooks, std::size_t data_ranks) override {
    std::vector<ParameterState*> seen;
    for (Unit* unit : units)
      for (ParameterState* state : unit->parameters) {
        if (state->info().expert_data) ExpertTrees::require(data_ranks, std::size_t(state->info().expert_data->size()));
        ParameterState* home = state;
        if (std::find(seen.begin(), seen.end(), state) != seen.end()) {
          home = seconds_.emplace_back(Second{state, second_use(*state)}).home.get();
          for (Hooks* wrapper : hooks) wrapper->allocate(*home);
          again_.push_back({"tied, further use", {home}});
        }
        seen.push_back(state);
        uses_[unit].push_back({state, home});
        trees_.try_emplace(home);
      }
  }

  void begin(const BatchShare& batch, AllHooks hooks, std::size_t data_rank, std::size_t data_ranks) override {
    if (batch.first != data_rank * batch.samples)
      throw_error<UsageError>({"reproducible: dp rank ", data_rank, "'s share of the batch begins at sequence ", batch.first,
                               ", expected ", data_rank * batch.samples,
                               ": shares lie in the order of the ranks and are of one size"});
    count_ = batch.micro_batches;
    terms_ = count_ * data_ranks;
    if (!tree_ || tree_->terms() != terms_) tree_ = std::make_unique<ReductionTree>(terms_, data_ranks);
    for (auto& [home, tree] : trees_) {
      // The number of data ranks, neighbours, whose micro-batches an expert sees: dp ranks per edp rank.
      const std::size_t sources =
          home->info().expert_data ? std::max<std::size_t>(1, data_ranks / std::size_t(home->info().expert_data->size())) : 1;
      tree.first = data_rank / sources * sources * count_;
      tree.held.clear();
      tree.begun.clear();
      tree.added.assign(count_ * sources, false);
      home->gradients().clear_nodes();
    }
    for (Hooks* wrapper : hooks) wrapper->begin_sums(*this);
  }

  void open(const Unit& unit, std::size_t micro) override {
    for (const Use& use : uses_of(unit))
      if (use.state->trainable() && !use.state->gradients().layer_buffer()) open_layer_gradient(*device_, *use.state);
    for (const Use& use : uses_of(unit)) {
      if (!use.state->trainable()) continue;
      if (!use.home->gradients().layer_buffer()) open_layer_gradient(*device_, *use.home);
      Tree& tree = trees_.at(use.home);
      tree.outside = use.state->gradients().layer_buffer();
      const auto begun = tree.begun.find(micro);
      if (begun == tree.begun.end()) {
        use.state->gradients().begin_term(tree.held.empty() && tree.begun.empty()
                                              ? use.home->gradients().layer_buffer()
                                              : device_->allocate(use.state->gradient_bytes()));
      } else {
        use.state->gradients().resume_term(std::move(begun->second));
        tree.begun.erase(begun);
      }
    }
  }
  void leave(const Unit& unit, std::size_t micro) override {
    for (const Use& use : uses_of(unit)) {
      if (!use.state->trainable()) continue;
      Tree& tree = trees_.at(use.home);
      if (auto term = use.state->gradients().leave_term(std::exchange(tree.outside, nullptr)))
        tree.begun[micro] = std::move(*term);
    }
  }
  // The wrappers inside data parallelism run after every micro-batch, data ranks at the end.
  void close(Unit& unit, std::size_t micro, AllHooks hooks) override {
    notify(unit, hooks, false);
    for (const Use& use : uses_of(unit)) {
      if (!use.state->trainable()) continue;
      Tree& tree = trees_.at(use.home);
      std::vector<Buffer> leaves = use.state->gradients().end_term(std::exchange(tree.outside, nullptr));
      for (std::size_t source = 0; source < leaves.size(); ++source)
        add(*use.home, tree, source * count_ + micro, std::move(leaves[source]));
      if (use.home != use.state && !leaves.empty())
        use.home->gradients().mark_unreduced(use.state->gradients().hand_on_unreduced());
    }
  }

  void ready(Unit& owned, AllHooks hooks, bool last) override {
    if (!last) return;
    complete(owned);
    notify(owned, hooks, true);
  }
  /// Adds the sums over data ranks of a parameter's uses, in the order of the model.
  void finish(std::span<const Tie> ties, std::span<Unit> tied, AllHooks hooks) override {
    for (Unit& unit : tied) ready(unit, hooks, true);
    for (Unit& unit : again_) ready(unit, hooks, true);
    for (Hooks* wrapper : hooks) wrapper->finish();
    agree_on_touched(ties);
    add_uses(ties);
  }

  std::span<Unit> second_uses() override { return again_; }

 protected:
  Device<Exec>& device() const { return *device_; }
  /// The tree of the step, over the data ranks.
  const ReductionTree& tree() const { return *tree_; }

 private:
  // Called after all micro-batches of these parameters: moves the first of the rank's nodes into the gradient's place, and keeps
  // the others beside it.
  void complete(const Unit& owned) {
    for (ParameterState* home : owned.parameters) {
      if (!home->trainable()) continue;
      Tree& tree = trees_.at(home);
      if (!home->gradients().layer_buffer()) open_layer_gradient(*device_, *home);
      const Buffer place = home->gradients().layer_buffer();
      for (std::size_t micro = 0; micro < tree.added.size(); ++micro) {
        if (tree.added[micro]) continue;
        Buffer zero = tree.held.empty() ? place : device_->allocate(home->gradient_bytes());
        typed(*home,
              [&](auto zero_of) { kernels::fill(*device_, home->size(), static_cast<decltype(zero_of)*>(zero.get()), zero_of); });
        add(*home, tree, micro, std::move(zero));
      }
      std::stable_sort(tree.held.begin(), tree.held.end(), [](const Node& a, const Node& b) { return a.begin() < b.begin(); });
      // If layers ran the micro-batches in another order, another node may be in that place; it moves out first.
      for (Node& node : tree.held)
        if (&node != &tree.held.front() && node.sum == place)
          node.sum = copied(*home, place, device_->allocate(home->gradient_bytes()));
      if (tree.held.front().sum != place) copied(*home, tree.held.front().sum, place);
      home->gradients().clear_nodes();
      for (std::size_t i = 1; i < tree.held.size(); ++i) home->gradients().add_node(std::move(tree.held[i].sum));
      tree.held.clear();
      home->gradients().fill();
    }
  }

  // Gives the same bits on all ranks that hold the parameter.
  void add_uses(std::span<const Tie> ties) {
    for (const Tie& tie : ties) {
      if (tie.state->kept() == 0 || !tie.state->trainable()) continue;
      typed(*tie.state, [&](auto zero) {
        using G = decltype(zero);
        const std::size_t size = tie.state->kept();
        const auto data = [](const Buffer& buffer) { return static_cast<G*>(buffer.get()); };
        std::vector<Buffer> mine{tie.state->gradient()};  // of this rank's uses, in the order of the model
        for (const Second& second : seconds_)
          if (second.of == tie.state) mine.push_back(second.home->gradient());
        if (!tie.holders) {
          for (std::size_t i = 1; i < mine.size(); ++i) kernels::accumulate<G, G>(*device_, size, data(mine[i]), data(mine[0]));
          return;
        }
        const Buffer sum = device_->allocate(size * sizeof(G)), coming = device_->allocate(size * sizeof(G));
        std::size_t next = 0;
        for (std::size_t use = 0; use < tie.uses.size(); ++use) {
          const bool own = tie.uses[use] == tie.holders->rank();
          const Buffer& term = own ? mine[next++] : coming;
          tie.holders->broadcast(std::span<G>(data(term), size), tie.uses[use]);
          if (use == 0) kernels::cast<G, G>(*device_, size, data(term), data(sum));
          else kernels::accumulate<G, G>(*device_, size, data(term), data(sum));
        }
        kernels::cast<G, G>(*device_, size, data(sum), data(mine[0]));
      });
    }
  }

  struct Use {
    ParameterState* state;
    ParameterState* home;
  };
  struct Second {
    ParameterState* of;
    std::unique_ptr<ParameterState> home;
  };
  struct Node : TreeNode {
    Buffer sum;
  };
  struct Tree {
    std::vector<Node> held;
    std::map<std::size_t, GradientTerm> begun;  // micro-batches to which layers will still add
    std::vector<char> added;
    std::size_t first = 0;  // the first of its micro-batches among all of the step
    Buffer outside;         // the state's gradient while layers add to another place
  };

  const std::vector<Use>& uses_of(const Unit& unit) { return uses_[&unit]; }

  void add(const ParameterState& home, Tree& tree, std::size_t micro, Buffer leaf) {
    if (tree.added[micro])
      throw_error<Error>({"reproducible: two gradients of ", home.name(), " for micro-batch ", tree.first + micro});
    tree.added[micro] = true;
    insert_node(tree.held, Node{{0, tree.first + micro}, std::move(leaf)}, terms_, [&](Node& into, Node& from) {
      typed(home, [&](auto zero) {
        using G = decltype(zero);
        kernels::accumulate<G, G>(*device_, home.size(), static_cast<const G*>(from.sum.get()), static_cast<G*>(into.sum.get()));
      });
    });
  }
  Buffer copied(const ParameterState& home, const Buffer& from, Buffer to) {
    typed(home, [&](auto zero) {
      using G = decltype(zero);
      kernels::cast<G, G>(*device_, home.size(), static_cast<const G*>(from.get()), static_cast<G*>(to.get()));
    });
    return to;
  }
  // Gradients are never narrower than float.
  template <class F>
  static void typed(const ParameterState& state, F&& f) {
    if (state.gradient_type() == DataType::float32) f(float{});
    else f(double{});
  }

  Device<Exec>* device_;
  std::size_t count_ = 0, terms_ = 0;
  std::map<const Unit*, std::vector<Use>> uses_;
  std::map<ParameterState*, Tree> trees_;
  std::unique_ptr<ReductionTree> tree_;  // of the step
  std::vector<Second> seconds_;
  std::vector<Unit> again_;
};

}  // namespace weft::detail
