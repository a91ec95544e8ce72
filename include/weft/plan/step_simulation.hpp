// SPDX-License-Identifier: Apache-2.0
#pragma once
// The simulation of one pipeline rank's training step without its numbers: the executor's actions, each of which takes and drops
// the same memory as the real one. The resulting bytes by kind agree with the arena's counters.
//
//   const auto table = schedule::named_table("1f1b", 4, 8);
//   for (const plan::StageMemory& rank : plan::memory(model, layout, table)) total = std::max(total, rank.bytes.total());

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/plan/layers.hpp>
#include <weft/plan/memory.hpp>
#include <weft/plan/memory_tracker.hpp>
#include <weft/plan/routes.hpp>
#include <weft/plan/shards.hpp>
#include <weft/plan/trees.hpp>

namespace weft::plan {

namespace detail {

class StepSimulation {
 public:
  StepSimulation(const ModelSizes& sizes, const StepLayout& layout, const schedule::Table& table, const Routes& routes,
                 const schedule::Timeline& timeline, int rank)
      : layout_(layout),
        table_(table),
        routes_(routes),
        timeline_(timeline),
        rank_(rank),
        model_(sizes, layout),
        layers_(model_, ledger_),
        shards_(layout, ledger_) {
    const std::size_t stages = std::size_t(table.stages());
    const auto& held = table.stage_of[std::size_t(rank)];
    const auto holds = [&](std::size_t stage) { return std::find(held.begin(), held.end(), int(stage)) != held.end(); };
    const bool both_ends = holds(0) && holds(stages - 1);
    // The table of a tied embedding: shared if both ends are in one chunk, else a separate group on each rank with an end.
    const bool own_group = model_.tied && stages > 1 && (holds(0) || holds(stages - 1));
    if (own_group) tied_ = shards_.add({model_.front().table}, layout.dp / layout.replicate);
    Group* front_table = nullptr;
    for (int chunk = 0; chunk < table.chunks; ++chunk) {
      Chunk& mine = chunks_.emplace_back();
      mine.stage = std::size_t(table.stage(rank, chunk));
      mine.blocks = sizes.layers * (mine.stage + 1) / stages - sizes.layers * mine.stage / stages;
      mine.first = mine.stage == 0;
      mine.last = mine.stage + 1 == stages;
      if (mine.first) {
        UnitSizes unit = model_.front();
        std::vector<std::size_t> owned = unit.parameters;
        if (!own_group) owned.insert(owned.begin(), unit.table);
        elements_ += unit.table + total(unit.parameters);
        add_unit(mine, std::move(owned), {});
        front_table = own_group ? tied_ : mine.units.back().uses.front();
        if (own_group) mine.units.back().uses.push_back(tied_);
        if (own_group) add_tree(mine.units.back(), tied_, unit.table);
      }
      for (std::size_t i = 0; i < mine.blocks; ++i) {
        const UnitSizes unit = model_.block();
        elements_ += total(unit.parameters) + total(unit.experts);
        add_unit(mine, unit.parameters, unit.experts);
      }
      if (mine.last) {
        UnitSizes unit = model_.back();
        std::vector<std::size_t> owned = unit.parameters;
        const bool shared = model_.tied && (both_ends || own_group);
        if (!shared) owned.push_back(unit.table);
        elements_ += total(owned) + (own_group && !both_ends ? unit.table : 0);
        add_unit(mine, std::move(owned), {});
        if (!shared) continue;
        Unit& back = mine.units.back();
        back.uses.push_back(both_ends && !own_group ? front_table : tied_);
        if (both_ends && layout.reproducible) {  // a second use has a separate gradient
          again_ = shards_.add({unit.table}, layout.dp / layout.replicate);
          again_->gradient_only = true;
        }
        add_tree(back, both_ends ? again_ : tied_, unit.table);
      }
    }
    bytes_ = shards_.keep();
  }

  StageMemory run() {
    step();  // learns the order of units, as the wrapper does
    ledger_.reset_peak();
    activations_ = 0;
    step();
    shards_.update();
    bytes_.activations = double(activations_);
    bytes_.buffers = double(ledger_.peak()) - bytes_.kept() - bytes_.activations;
    return {table_.stage_of[std::size_t(rank_)], elements_, bytes_};
  }

 private:
  struct Saved {
    std::vector<Block> front;
    std::vector<SavedBlock> blocks;
    SavedHead back;
  };
  struct Unit {
    std::vector<Group*> uses, owns;
    std::vector<std::size_t> trees;  // of the uses of parameters, in a reproducible run
  };
  struct Chunk {
    std::size_t stage = 0, blocks = 0;
    bool first = false, last = false;
    std::vector<Unit> units;
    int done = 0;
    std::map<int, Saved> saved;
    std::map<int, std::vector<DeferredBlocks>> deferred;
  };
  struct Sending {
    Block block;
    double taken;
  };

  static std::size_t total(const std::vector<std::size_t>& sizes) {
    std::size_t sum = 0;
    for (const std::size_t size : sizes) sum += size;
    return sum;
  }

  // Experts have their own data ranks.
  void add_unit(Chunk& chunk, std::vector<std::size_t> parameters, std::vector<std::size_t> experts) {
    Unit& unit = chunk.units.emplace_back();
    unit.owns.push_back(shards_.add(std::move(parameters), layout_.dp / layout_.replicate));
    if (!experts.empty()) unit.owns.push_back(shards_.add(std::move(experts), layout_.edp / layout_.replicate));
    unit.uses = unit.owns;
    for (Group* group : unit.owns)
      for (const std::size_t size : group->parameters)
        add_tree(unit, group, size, std::max<std::size_t>(1, layout_.dp / (group->ranks * layout_.replicate)));
  }

  void add_tree(Unit& unit, Group* group, std::size_t elements, std::size_t sources = 1) {
    if (!layout_.reproducible) return;
    unit.trees.push_back(trees_.size());
    const std::size_t count = layout_.micro_batches;
    trees_.emplace_back(group, elements, sources,
                        worst_first_term(count * layout_.dp, count) / (sources * count) * sources * count);
  }
  // Called before layers add to the gradients of a unit; they have afterwards, unless they deferred it.
  void open(const Unit& unit) {
    for (Group* group : unit.uses) shards_.open(*group);
    for (const std::size_t tree : unit.trees) trees_[tree].open(shards_, ledger_);
  }
  void close(const Unit& unit, const schedule::Action& action, bool added) {
    for (const std::size_t tree : unit.trees)
      trees_[tree].close(std::size_t(action.micro), layout_.micro_batches, layout_.micro_batches * layout_.dp, added);
  }
  void complete(const std::vector<Group*>& owned) {
    for (GradientTree& tree : trees_)
      if (std::find(owned.begin(), owned.end(), tree.group()) != owned.end()) tree.complete();
    shards_.ready(owned, true);
  }

  void step() {
    shards_.begin();
    for (Chunk& chunk : chunks_) chunk.done = 0;
    for (GradientTree& tree : trees_) tree.begin();
    const schedule::Order& order = table_.orders[std::size_t(rank_)];
    for (std::size_t i = 0; i < order.size(); ++i) {
      Chunk& chunk = chunks_[std::size_t(order[i].chunk)];
      if (order[i].what == schedule::Op::F) forward(chunk, order[i]);
      else if (order[i].what == schedule::Op::W) weight(chunk, order[i]);
      else backward(chunk, order[i]);
      std::erase_if(sending_, [&](const Sending& sending) { return sending.taken <= timeline_.end[std::size_t(rank_)][i]; });
      activations_ = std::max(activations_, ledger_.current(MemoryTracker::Kind::activation));
      receive_ahead(i + 1, timeline_.end[std::size_t(rank_)][i]);
    }
    sending_.clear();
    if (tied_ != nullptr) {
      shards_.open(*tied_);
      if (table_.ranks > 1 && chunks_.size() == 1) ledger_.take(tied_->parameters.front() * model_.sum);
      complete({tied_});
    }
    if (again_ != nullptr) complete({again_});
    shards_.finish();
  }

  void send(Block block, const schedule::Action& action) {
    const Routes::Place to = routes_.goes_to(rank_, action);
    if (to.rank < 0) kept_.emplace(std::pair(action.micro, action.what == schedule::Op::F), std::move(block));
    else sending_.push_back({std::move(block), timeline_.start[std::size_t(to.rank)][to.at]});
  }
  Block receive(const schedule::Action& action) {
    if (routes_.comes_from(rank_, action).rank < 0)
      return kept_.extract(std::pair(action.micro, action.what == schedule::Op::F)).mapped();
    return came_ ? std::exchange(came_, nullptr) : layers_.hidden();
  }
  // Posts the receive of the next input from another rank as soon as that input has been sent.
  void receive_ahead(std::size_t at, double now) {
    const schedule::Order& order = table_.orders[std::size_t(rank_)];
    for (; at < order.size() && !came_; ++at) {
      const Routes::Place from = routes_.comes_from(rank_, order[at]);
      if (from.rank < 0) continue;
      if (timeline_.end[std::size_t(from.rank)][from.at] <= now) came_ = layers_.hidden();
      return;
    }
  }

  void forward(Chunk& chunk, const schedule::Action& action) {
    Saved saved;
    std::size_t unit = 0;
    Block hidden;
    if (chunk.first) {
      shards_.use(chunk.units[unit].uses);
      hidden = layers_.front_forward(saved.front);
      shards_.leave(chunk.units[unit++].uses);
    } else {
      hidden = receive(action);
    }
    for (std::size_t i = 0; i < chunk.blocks; ++i) {
      shards_.use(chunk.units[unit].uses);
      SavedBlock block;
      Block out = layers_.block_forward(hidden, block);
      if (layout_.recompute == Recompute::full) {
        block = SavedBlock();
        block.input = hidden;
      }
      hidden = std::move(out);
      saved.blocks.push_back(std::move(block));
      shards_.leave(chunk.units[unit++].uses);
    }
    if (chunk.last) {
      shards_.use(chunk.units[unit].uses);
      const Block targets = ledger_.take(model_.rows * 4);
      layers_.head_forward(hidden, saved.back);
      shards_.leave(chunk.units[unit].uses);
    } else {
      send(hidden, action);
    }
    chunk.saved.emplace(action.micro, std::move(saved));
  }

  void backward(Chunk& chunk, const schedule::Action& action) {
    Saved saved = std::move(chunk.saved.extract(action.micro).mapped());
    const bool whole = action.what == schedule::Op::B;
    std::vector<DeferredBlocks> later(chunk.units.size());
    if (whole) ++chunk.done;
    std::size_t unit = chunk.units.size();
    Block gradient = chunk.last ? nullptr : receive(action);
    const auto run = [&](auto&& layer) {
      --unit;
      shards_.use(chunk.units[unit].uses);
      DeferredBlocks deferred;
      if (layout_.reproducible) open(chunk.units[unit]);
      gradient = layer(deferred);
      if (whole) {
        if (!layout_.reproducible) open(chunk.units[unit]);
        layers_.weights(std::move(deferred));
      } else {
        later[unit] = std::move(deferred);
      }
      close(chunk.units[unit], action, whole);
      shards_.leave(chunk.units[unit].uses);
      if (whole) ready(chunk, unit);
    };
    if (chunk.last) run([&](DeferredBlocks& deferred) { return layers_.head_backward(std::exchange(saved.back, {}), deferred); });
    for (std::size_t i = chunk.blocks; i-- > 0;)
      run([&](DeferredBlocks& deferred) {
        SavedBlock block = std::exchange(saved.blocks[i], {});
        const Block input = block.input;
        if (layout_.recompute == Recompute::full) {
          block = SavedBlock();
          layers_.block_forward(input, block);
        }
        return layers_.block_backward(std::move(block), gradient, deferred);
      });
    if (chunk.first) {
      run([&](DeferredBlocks& deferred) {
        deferred = layers_.front_backward(std::exchange(saved.front, {}), gradient);
        return Block();
      });
    } else {
      send(gradient, action);
    }
    if (!whole) chunk.deferred.emplace(action.micro, std::move(later));
  }

  void weight(Chunk& chunk, const schedule::Action& action) {
    std::vector<DeferredBlocks> deferred = std::move(chunk.deferred.extract(action.micro).mapped());
    ++chunk.done;
    for (std::size_t unit = chunk.units.size(); unit-- > 0;) {
      open(chunk.units[unit]);
      layers_.weights(std::exchange(deferred[unit], {}));
      close(chunk.units[unit], action, true);
      ready(chunk, unit);
    }
  }

  void ready(Chunk& chunk, std::size_t unit) {
    if (chunk.done == table_.micro_batches) complete(chunk.units[unit].owns);
    else if (shards_.each_micro_batch()) shards_.ready(chunk.units[unit].owns, false);
  }

  StepLayout layout_;
  const schedule::Table& table_;
  const Routes& routes_;
  const schedule::Timeline& timeline_;
  int rank_;
  MemoryTracker ledger_;
  LocalModel model_;
  Layers layers_;
  DataShards shards_;
  std::vector<Chunk> chunks_;
  Group *tied_ = nullptr, *again_ = nullptr;
  std::vector<GradientTree> trees_;
  std::vector<Sending> sending_;
  Block came_;                                  // the next input, if it has arrived early
  std::map<std::pair<int, bool>, Block> kept_;  // between two stages of this rank
  std::size_t elements_ = 0, activations_ = 0;
  Bytes bytes_;
};

}  // namespace detail

/// The memory of each rank of the pipeline. `table` is the schedule's table for layout.pp and layout.micro_batches.
inline std::vector<StageMemory> memory(const ModelSizes& model, const StepLayout& layout, const schedule::Table& table) {
  const schedule::Timeline timeline = schedule::simulate(table);
  const Routes routes(table);
  std::vector<StageMemory> ranks;
  for (int rank = 0; rank < table.ranks; ++rank)
    ranks.push_back(detail::StepSimulation(model, layout, table, routes, timeline, rank).run());
  return ranks;
}

}  // namespace weft::plan
