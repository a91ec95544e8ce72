// SPDX-License-Identifier: Apache-2.0
#pragma once
// The decision tree, the ranking by formulas, and the rehearsal of the best layouts. Definitions for plan/choose.hpp.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/mesh/stage_layers.hpp>
#include <weft/plan/choose.hpp>
#include <weft/plan/choose_report.hpp>
#include <weft/runtime/rehearse.hpp>

namespace weft::plan::detail {

WEFT_COLD WEFT_INLINE Branch branch_of(const Candidate& c) {
  return c.cp > 1        ? Branch::context
         : c.pp > 1      ? Branch::pipeline
         : c.tp > 1      ? Branch::tensor
         : c.zero > 0    ? Branch::sharded
         : c.ranks() > 1 ? Branch::data
                         : Branch::one_rank;
}

WEFT_COLD WEFT_INLINE bool of_tree(const Search& search, const Candidate& c) {
  if (c.ulysses || c.order != PipelineOrder::one_forward_one_backward || c.replicate > 1 || saves_memory(c)) return false;
  if (c.tp > 1 && c.sequence_parallel != search.sequence_parallel && search.sequence % (c.tp * c.cp) == 0) return false;
  if (branch_of(c) == Branch::data && c.kept != Kept::all) return false;  // sharding costs less than recomputing
  if (c.tp > 1 && c.dp > 1 && c.zero == 0) return false;                  // sharding the optimizer state costs almost nothing
  if (search.experts > 0 && c.etp != 1) return false;
  return c.kept != Kept::selected;
}

/// Sort key of the layouts on one branch of the tree: fewer divisions first, then less recomputation, less sharding, less time.
inline std::array<double, 6> tree_key(const Search& search, const Candidate& c, double seconds) {
  // Prefer experts within a node.
  const double ep = search.experts == 0 ? 0 : c.ep <= search.ranks_per_node ? -double(c.ep) : double(c.ep);
  return {double(c.cp), double(c.pp), double(c.tp), ep, double(c.kept), c.zero + seconds * 1e-9};
}

/// The numbers of micro-batches to rehearse: all of them if the step is short. Otherwise two numbers whose difference gives the
/// time of one more micro-batch while all ranks are busy.
WEFT_COLD WEFT_INLINE std::array<int, 2> sampled(const Candidate& c, const Search& search) {
  constexpr double short_step = 512;
  // V shapes reach a steady state from 2 * pp micro-batches on. DualPipeV has no table for fewer.
  const int low = c.pp == 1 ? 2 : is_v_shape(c.order) ? 2 * c.pp : c.pp, high = c.pp == 1 ? 3 : 2 * low;
  if (double(search.layers) * c.micro_batches <= short_step || c.micro_batches <= high) return {c.micro_batches, c.micro_batches};
  return {low, high};
}

WEFT_COLD WEFT_INLINE double passes_of(const Candidate& c, const Search& search) {
  const std::array<int, 2> parts = sampled(c, search);
  const double steps = parts[0] == parts[1] ? 1 : 2, ranks = std::min(3, int(c.pp));  // ranks rehearsed for their memory
  const double step = steps == 1 ? parts[0] : parts[0] + parts[1],
               memory = ranks * (c.order == PipelineOrder::gpipe ? c.micro_batches : parts[1]) / double(c.pp);
  // A program compares the copies of its shards with one word per shard.
  constexpr double word = 3e-3;
  const double compared = c.replicate > 1 ? word * double(c.dp) / c.replicate * (steps + ranks / c.pp) : 0;
  return double(search.layers) * (step + memory + compared);
}

WEFT_COLD WEFT_INLINE Estimate step_of(Piece whole, int micro_batches, const Machine& machine, const TrainPiece& train) {
  whole.layout.micro_batches = micro_batches;
  return estimate({.ranks = whole.layout.ranks(), .ranks_per_node = machine.ranks_per_node}, machine,
                  [&](World& world) { train(world, whole); });
}

WEFT_COLD WEFT_INLINE Estimate whole_step(const Piece& whole, const Search& search, const Machine& machine,
                                          const TrainPiece& train) {
  const Candidate& c = whole.layout;
  const std::array<int, 2> parts = sampled(c, search);
  Estimate step = step_of(whole, parts[1], machine, train);
  if (parts[0] == parts[1]) return step;
  const Estimate part = step_of(whole, parts[0], machine, train);
  const double more = double(c.micro_batches - parts[1]) / double(parts[1] - parts[0]);
  const auto on = [more](double& value, double before) { value += more * (value - before); };
  on(step.seconds, part.seconds), on(step.flops, part.flops), on(step.model_flops, part.model_flops),
      on(step.tokens, part.tokens);
  on(step.replayed.seconds, part.replayed.seconds);
  for (std::size_t i = 0; i < step.replayed.stages.size(); ++i) {
    StageTimes& s = step.replayed.stages[i];
    const StageTimes& b = part.replayed.stages[i];
    on(s.products, b.products), on(s.attention, b.attention), on(s.kernels, b.kernels), on(s.optimizer, b.optimizer);
    on(s.bubble, b.bubble);
    for (auto& [axis, seconds] : s.exposed) {
      const auto before = b.exposed.find(axis);
      on(seconds, before == b.exposed.end() ? 0 : before->second);
    }
  }
  return step;
}

WEFT_COLD WEFT_INLINE WholeMemory whole_memory(const Piece& asked, const Search& search, const Machine& machine,
                                               const TrainPiece& train) {
  Piece whole = asked;
  const Candidate& c = whole.layout;
  if (c.order != PipelineOrder::gpipe) whole.layout.micro_batches = sampled(c, search)[1];  // GPipe holds all of them
  WholeMemory most;
  const auto rehearsed = [&](int rank) {
    const Rehearsal notes = runtime::rehearse({.rank = rank, .ranks = c.ranks(), .ranks_per_node = machine.ranks_per_node},
                                              [&](World& world) { train(world, whole); });
    most.device = std::max(most.device, double(notes.peak));
    most.host = std::max(most.host, double(notes.host_activation_bytes));
    return notes.fullest;
  };
  // Embedding and most micro-batches in flight, the next (which may have more layers), middle, head.
  const bool even = whole.stage_layers.empty() && search.layers % (std::int64_t(c.pp) * c.chunks) == 0;
  for (const int stage : std::set<int>{0, even ? 0 : std::min(1, c.pp - 1), c.pp / 2, c.pp - 1}) {
    const int first = stage * (c.ranks() / c.pp), fullest = rehearsed(first);
    if (fullest >= 0 && fullest != first) rehearsed(fullest);
  }
  return most;
}

WEFT_COLD WEFT_INLINE std::vector<std::size_t> stages_by_cost(const Candidate& c, const Search& search, const Estimate& step) {
  const std::size_t ranks = step.replayed.stages.size(), stages = ranks * std::size_t(c.chunks);
  if (ranks < 2) return {};
  const std::vector<std::size_t> even = mesh_layout::even_layers(std::size_t(search.layers), stages);
  std::vector<std::size_t> rank_of(stages);
  std::vector<double> layers(ranks), seconds(ranks);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    rank_of[stage] = is_v_shape(c.order) ? std::min(stage, stages - 1 - stage) : stage % ranks;
    layers[rank_of[stage]] += double(even[stage]);
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const StageTimes& times = step.replayed.stages[rank];
    seconds[rank] = times.products + times.attention + times.kernels;
  }
  const std::size_t first = rank_of.front(), last = rank_of.back();
  // A block's cost is that of a rank without an end. Two ranks have none: their ends then cost what one has more than the other.
  double block = std::min(seconds[first] / layers[first], seconds[last] / layers[last]);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (rank != first && rank != last) block = seconds[rank] / layers[rank];
  if (!(block > 0)) return {};
  const auto more = [&](std::size_t rank) { return std::max(0.0, seconds[rank] - block * layers[rank]); };
  const mesh_layout::StageCosts costs{first == last ? 0 : more(first), block, more(last)};
  std::vector<std::size_t> counts = mesh_layout::balanced_layers(std::size_t(search.layers), rank_of, costs);
  return counts == even ? std::vector<std::size_t>() : counts;
}

/// The best layouts by formulas, and the tree's candidates.
struct ByFormulas {
  struct One {
    Candidate layout;
    CandidateCost cost;
  };
  std::vector<One> best;                                          // the fastest first
  std::array<std::vector<One>, std::size_t(Branch::count)> tree;  // best of each branch, in the tree's order
  std::optional<One> smallest;
  std::size_t legal = 0, fitting = 0;
  bool complete = true;
};

/// The fastest layouts by formulas, at most a few hundred. Layouts that differ only in `replicate` and in what saves_memory are
/// alike: for a few fractions of the memory, the fastest of them that needs at most this fraction is kept, since formulas are
/// inexact.
class Fastest {
 public:
  static constexpr double surely = 0.85, at_most = 1.1;  // fractions of the memory: fits despite the formula's error; may fit

  explicit Fastest(double memory) : memory_(memory) {}

  void add(const Candidate& layout, const CandidateCost& cost) {
    Candidate plain = layout;
    plain.replicate = plain.loss_chunks = 1, plain.offload = plain.host_activations = false;
    if (!(plain == plain_)) settle(), plain_ = plain;
    constexpr std::array<double, 3> limits{surely, 1, at_most};
    for (std::size_t i = memory_ > 0 ? 0 : limits.size() - 1; i < limits.size(); ++i)
      if ((memory_ <= 0 || cost.memory <= limits[i] * memory_) && (!alike_[i] || cost.seconds < alike_[i]->cost.seconds))
        alike_[i] = {layout, cost};
  }
  /// The fastest first.
  WEFT_COLD std::vector<ByFormulas::One> sorted() {
    settle();
    std::sort_heap(best_.begin(), best_.end(), slower);
    return std::move(best_);
  }

 private:
  static bool slower(const ByFormulas::One& a, const ByFormulas::One& b) { return a.cost.seconds < b.cost.seconds; }

  void settle() {
    for (std::size_t i = 0; i < alike_.size(); ++i)
      if (alike_[i] && (i + 1 == alike_.size() || alike_[i]->layout != alike_[i + 1]->layout)) push(*alike_[i]);
    alike_ = {};
  }
  void push(const ByFormulas::One& one) {
    constexpr std::size_t most = 512;
    if (best_.size() == most) {
      if (one.cost.seconds >= best_.front().cost.seconds) return;
      std::pop_heap(best_.begin(), best_.end(), slower);
      best_.pop_back();
    }
    best_.push_back(one);
    std::push_heap(best_.begin(), best_.end(), slower);
  }

  double memory_;
  Candidate plain_;  // the layouts in alike_ without what saves memory
  std::array<std::optional<ByFormulas::One>, 3> alike_;
  std::vector<ByFormulas::One> best_;  // a heap, the slowest first
};

class Timer {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count(); }

 private:
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

/// Bytes of host memory that each rank of a node has; infinity: without a limit.
inline double host_share(const Machine& machine, const Search& search) {
  if (machine.host_memory <= 0) return std::numeric_limits<double>::infinity();
  return machine.host_memory / double(std::min(search.ranks, search.ranks_per_node));
}

WEFT_COLD WEFT_INLINE ByFormulas search_by_formulas(const Search& search, CandidateCosts& costs, double host, const Timer& timer,
                                                    double until_s) {
  constexpr std::size_t most_of_a_branch = 8;
  constexpr double hopeless = 1.2;  // factor of time above which larger cp is given up
  ByFormulas found;
  Fastest fastest(search.memory);
  double on_device = 0;   // bytes of this layout without offload and with a whole loss, which came before
  double whole_loss = 0;  // the same with this layout's offload
  double stays = 0;       // the same with its loss, too: bytes with activations on the device
  double best = std::numeric_limits<double>::infinity(), best_of_cp = best, best_before = best;
  int cp = 0;
  bool skips = false;
  for_each_candidate(search, [&](const Candidate& c) {
    ++found.legal;
    if (c.cp != cp) {  // two consecutive cp that are much slower end the search of larger cp
      skips = skips || (std::min(best_of_cp, best_before) > hopeless * best && cp > 1);
      cp = c.cp, best_before = best_of_cp, best_of_cp = std::numeric_limits<double>::infinity();
    }
    if (skips) return;
    const double fits = Fastest::surely * search.memory;
    if (c.offload && on_device <= fits) return;           // offload would only cost time
    if (c.loss_chunks > 1 && whole_loss <= fits) return;  // and so would parts of the loss
    if (c.host_activations && stays <= fits) return;      // and copies of activations
    if (timer.seconds() > until_s && !costs.knows(c)) {
      found.complete = false;
      return;
    }
    if (c.host_activations && costs.host_memory(c) > Fastest::at_most * host) return;
    CandidateCost cost{0, costs.memory(c)};
    if (!c.host_activations) stays = cost.memory;
    if (!c.host_activations && c.loss_chunks == 1) whole_loss = cost.memory;
    if (!saves_memory(c)) on_device = cost.memory;
    if (!found.smallest || cost.memory < found.smallest->cost.memory) found.smallest = {c, cost};
    if (search.memory > 0 && cost.memory > Fastest::at_most * search.memory) return;
    ++found.fitting;
    cost.seconds = costs.seconds(c);
    best_of_cp = std::min(best_of_cp, cost.seconds), best = std::min(best, cost.seconds);
    if (of_tree(search, c) && (search.memory <= 0 || cost.memory <= search.memory)) {
      std::vector<ByFormulas::One>& branch = found.tree[std::size_t(branch_of(c))];
      const auto key = tree_key(search, c, cost.seconds);
      const auto at = std::find_if(branch.begin(), branch.end(), [&](const ByFormulas::One& one) {
        return key < tree_key(search, one.layout, one.cost.seconds);
      });
      branch.insert(at, {c, cost});
      if (branch.size() > most_of_a_branch) branch.pop_back();
    }
    fastest.add(c, cost);
  });
  found.best = fastest.sorted();
  return found;
}

}  // namespace weft::plan::detail

namespace weft::plan {

WEFT_COLD WEFT_INLINE Chosen choose(const Search& search, const Machine& given, const ChooseOptions& options) {
  const detail::Timer timer;
  Machine machine = given;
  machine.ranks_per_node = int(search.ranks_per_node);
  CandidateCosts costs(search, machine, options.train);
  const double host = detail::host_share(machine, search);
  const detail::ByFormulas found = detail::search_by_formulas(search, costs, host, timer, 0.45 * options.limit_s);
  if (found.legal == 0)
    throw_error<LayoutError>({"choose: no layout of ", search.ranks, " ranks is legal: global batch(", search.global_batch,
                              "), heads(", search.heads, "), layers(", search.layers, ") and sequence(", search.sequence,
                              ") have no degrees whose product is ", search.ranks});
  const auto none_fits = [&](double needed) {
    throw_error<MemoryError>({"choose: out of memory: of ", found.legal, " legal layouts none fits into ",
                              runtime::bytes_text(search.memory), " a rank; the smallest needs ", runtime::bytes_text(needed),
                              ": ", text_of(found.smallest->layout)});
  };
  if (found.best.empty()) none_fits(found.smallest->cost.memory);
  Chosen chosen;
  chosen.search = search, chosen.machine = machine.name;
  chosen.legal = found.legal, chosen.fitting = found.fitting, chosen.complete = found.complete;
  double least = std::numeric_limits<double>::infinity(), best = least, all_passes = 0, all_seconds = 0;
  std::map<Candidate, RankedLayout> rehearsed;
  // Null if the layout does not fit, or if its rehearsal would exceed the remaining time.
  const auto rehearse = [&](const detail::ByFormulas::One& one) -> const RankedLayout* {
    if (const auto known = rehearsed.find(one.layout); known != rehearsed.end()) return &known->second;
    const double passes = detail::passes_of(one.layout, search), started = timer.seconds();
    if (all_passes > 0 && started + 1.5 * all_seconds / all_passes * passes > options.limit_s) {
      chosen.complete = false;
      return nullptr;
    }
    ++chosen.rehearsed;
    RankedLayout layout;
    layout.layout = one.layout, layout.formulas = one.cost;
    Piece whole{one.layout, search.layers, search.vocabulary};
    const detail::WholeMemory bytes = detail::whole_memory(whole, search, machine, options.train);
    layout.memory = bytes.device, layout.host_memory = bytes.host;
    if (bytes.host > host) return nullptr;
    least = std::min(least, layout.memory);
    if (search.memory > 0 && layout.memory > search.memory) return nullptr;
    layout.step = detail::whole_step(whole, search, machine, options.train);
    all_passes += passes, all_seconds += timer.seconds() - started;
    constexpr double near = 1.3;  // stages by cost save less than this
    if (layout.step.seconds < near * best) whole.stage_layers = detail::stages_by_cost(one.layout, search, layout.step);
    if (!whole.stage_layers.empty()) {
      const Estimate by_cost = detail::whole_step(whole, search, machine, options.train);
      const detail::WholeMemory again = by_cost.seconds < layout.step.seconds
                                            ? detail::whole_memory(whole, search, machine, options.train)
                                            : detail::WholeMemory();
      if (again.device > 0 && (search.memory <= 0 || again.device <= search.memory) && again.host <= host) {
        layout.stage_layers = whole.stage_layers, layout.step = by_cost;
        layout.memory = again.device, layout.host_memory = again.host;
      }
    }
    whole.stage_layers = layout.stage_layers;
    best = std::min(best, layout.step.seconds);
    if (options.names) layout.names = options.names(whole);
    return &rehearsed.emplace(one.layout, std::move(layout)).first->second;
  };
  for (const std::vector<detail::ByFormulas::One>& branch : found.tree)
    for (const detail::ByFormulas::One& one : branch) {
      if (chosen.tree) break;
      if (const RankedLayout* const answer = rehearse(one)) {
        chosen.tree = *answer;
        chosen.reason = chosen.tree->why = detail::reason_of(search, one.layout, answer->memory);
      }
    }
  // Layouts that the formulas place this far above the best rehearsed time are skipped.
  constexpr double hopeless = 1.6;
  for (const detail::ByFormulas::One& one : found.best) {
    if (rehearsed.size() >= options.listed && one.cost.seconds > hopeless * best) break;
    rehearse(one);
  }
  if (rehearsed.empty()) none_fits(std::isfinite(least) ? least : found.smallest->cost.memory);
  for (auto& [layout, ranked] : rehearsed) chosen.best.push_back(std::move(ranked));
  std::sort(chosen.best.begin(), chosen.best.end(),
            [](const RankedLayout& a, const RankedLayout& b) { return a.step.seconds < b.step.seconds; });
  if (chosen.best.size() > options.listed)
    chosen.best.erase(chosen.best.begin() + std::ptrdiff_t(options.listed), chosen.best.end());
  for (std::size_t i = 0; i < chosen.best.size(); ++i) {
    const RankedLayout* const tree = chosen.tree && chosen.tree->layout != chosen.best[i].layout ? &*chosen.tree : nullptr;
    const RankedLayout* const other = tree != nullptr ? tree : i + 1 < chosen.best.size() ? &chosen.best[i + 1] : nullptr;
    chosen.best[i].why = detail::why_of(chosen.best[i], other, tree != nullptr ? "the tree's answer" : "the next");
  }
  chosen.seconds = timer.seconds();
  return chosen;
}

}  // namespace weft::plan
