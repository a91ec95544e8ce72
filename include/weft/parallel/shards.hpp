// SPDX-License-Identifier: Apache-2.0
#pragma once
// How FullyShardedDataParallel keeps a model: the parameters of a unit lie one after the other in one flat array, of which
// each data rank keeps an equal piece, whatever the shapes are. A unit is so gathered and reduced by one collective each,
// without a copy on either side (Zhao et al., PyTorch FSDP, arXiv:2304.11277; Rajbhandari et al., ZeRO, arXiv:1910.02054).

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/nn/hooks.hpp>
#include <weft/nn/model.hpp>
#include <weft/nn/parameter.hpp>
#include <weft/tensor/to.hpp>

namespace weft::detail {

// What a stage of ZeRO keeps whole on every rank.
struct ShardRules {
  bool keeps_values = false, keeps_gradients = false;
};

// The runs of the elements [begin, end), counted from `begin`.
inline std::vector<Run> cut_runs(const std::vector<Run>& runs, std::size_t begin, std::size_t end) {
  std::vector<Run> cut;
  for (const Run& run : runs) {
    const std::size_t first = std::max(begin, run.local), last = std::min(end, run.local + run.length);
    if (first < last) cut.push_back({first - begin, run.global + (first - run.local), last - first, run.owned, run.shared});
  }
  return cut;
}

template <class Exec>
class Shards : public Hooks {
 public:
  Shards(Communicator comm, Device<Exec>& device, const ModelOptions& options, ShardRules rules)
      : comm_(std::move(comm)), device_(&device), seed_(options.seed), rules_(rules), each_micro_batch_(!rules.keeps_gradients && options.reduce_each_micro_batch) {}

  // Nothing is allocated before the units are known: the whole parameter never exists, not even while the model is made.
  bool allocate(ParameterState& state) override {
    state.sharded |= axis_bit<dp>;
    state.gathered.emplace();
    state.gathered->keeper = this;
    state.gathered->runs = std::exchange(state.runs, {});
    return true;
  }

  void prepare(std::span<Unit*> units) override {
    for (Unit* unit : units) {
      if (unit->parameters.empty()) continue;
      Group& group = *groups_.emplace_back(std::make_unique<Group>());
      for (ParameterState* state : unit->parameters) {
        group_of_[state] = &group;
        group.members.push_back({state, group.elements, 0});
        group.elements += (state->size() + grain - 1) / grain * grain;
      }
      place(group);
    }
  }

  bool reduces_each_micro_batch() const override { return each_micro_batch_; }

  void begin(bool training) override {
    trace_ = &traces_[training];
    at_ = 0;
    if (reducing_) settle(*reducing_);  // of a step that ended early
    // The optimizer has updated the shards: what was gathered is old.
    for (auto& group : groups_) {
      drop(*group);
      group->reduced = false;
    }
  }
  void before_forward(Unit& unit) override { use(unit); }
  void after_forward(Unit& unit) override { leave(unit); }
  void before_backward(Unit& unit) override { use(unit); }
  void after_backward(Unit& unit) override { leave(unit); }

  void open_gradient(ParameterState& state) override { open(*group_of_.at(&state)); }

  void gradients_ready(Unit& unit) override {
    if (unit.parameters.empty()) return;
    Group& group = *group_of_.at(unit.parameters.front());
    for (const Member& member : group.members) {
      ParameterState& state = *member.state;
      if (state.pending & ~axis_bit<dp>) throw DebtError("the gradient of " + state.name + " is to be summed over dp while it still owes another sum");
      state.pending = 0;
      state.fresh = true;
    }
    // One reduction is under way at a time: a second one would hold a second whole unit.
    if (reducing_) settle(*reducing_);
    reduce(group);
  }

  void finish() override {
    if (reducing_) settle(*reducing_);
    for (auto& group : groups_) {
      if (group->gathering) wait(*group);
      if (!rules_.keeps_values) drop(*group);
    }
  }

 private:
  static constexpr std::size_t grain = 32;  // elements; pieces and parameters begin on cache lines in every element type

  struct Member {
    ParameterState* state;
    std::size_t first;      // in the flat array
    std::size_t kept = 0;   // first element that this rank keeps, in its piece
  };
  struct Group {
    std::vector<Member> members;
    std::size_t elements = 0, piece = 0;  // of the flat array, and of a rank's part of it
    std::size_t value_bytes = 0, gradient_bytes = 0;  // of one element
    Buffer shard, shard_gradient;   // this rank's piece: what the optimizer sees
    Buffer values, gradients;       // flat and whole, where there now
    Buffer leaving, sum;            // of the reduction under way: its input and, where it cannot go to its place, its output
    Request gather, reduction;
    bool gathering = false, here = false, reduced = false;
  };

  static Buffer at(const Buffer& buffer, std::size_t bytes) { return Buffer(buffer, static_cast<char*>(buffer.get()) + bytes); }

  void place(Group& group) {
    const ParameterState& any = *group.members.front().state;
    for (const Member& member : group.members)
      if (member.state->type != any.type) throw UsageError("parameters " + any.name + " and " + member.state->name + " of one unit differ in their element type");
    const std::size_t ranks = comm_.size(), rank = comm_.rank();
    group.piece = ((group.elements + ranks - 1) / ranks + grain - 1) / grain * grain;
    group.value_bytes = size_of(any.type);
    group.gradient_bytes = size_of(any.gradient_type);
    const std::size_t begin = rank * group.piece, end = begin + group.piece;
    if (rules_.keeps_values) group.values = device_->allocate_lasting(group.piece * ranks * group.value_bytes);
    group.shard = rules_.keeps_values ? at(group.values, begin * group.value_bytes) : device_->allocate_lasting(group.piece * group.value_bytes);
    if (rules_.keeps_gradients) open(group);
    group.shard_gradient = rules_.keeps_gradients ? at(group.gradients, begin * group.gradient_bytes) : device_->allocate_lasting(group.piece * group.gradient_bytes);
    fill_zero(*device_, static_cast<char*>(group.shard.get()), group.piece * group.value_bytes);
    for (Member& member : group.members) {
      ParameterState& state = *member.state;
      const std::size_t first = std::clamp(begin, member.first, member.first + state.size()), last = std::clamp(end, member.first, member.first + state.size());
      state.gathered->kept = last - first;
      if (first == last) continue;
      state.runs = cut_runs(state.gathered->runs, first - member.first, last - member.first);
      member.kept = first - begin;
      state.value = at(group.shard, member.kept * group.value_bytes);
      dispatch_real(state.type, [&](auto zero) { initialise_parameter<decltype(zero)>(*device_, state, seed_); });
    }
  }

  // Whole gradients of a group, for layers to add to. Gaps between parameters are zero: they are summed too.
  void open(Group& group) {
    if (!group.gradients) {
      const std::size_t bytes = group.piece * comm_.size() * group.gradient_bytes;
      group.gradients = rules_.keeps_gradients ? device_->allocate_lasting(bytes) : device_->allocate(bytes);
      std::size_t used = 0;
      const auto clear = [&](std::size_t from, std::size_t to) {
        fill_zero(*device_, static_cast<char*>(group.gradients.get()) + from * group.gradient_bytes, (to - from) * group.gradient_bytes);
      };
      for (const Member& member : group.members) {
        clear(used, member.first);
        used = member.first + member.state->size();
      }
      clear(used, group.piece * comm_.size());
    }
    for (const Member& member : group.members) member.state->gathered->gradient = at(group.gradients, member.first * group.gradient_bytes);
  }

  // Its units' order in a run is learnt from the last run of the same kind, the same on all data ranks: they run the same schedule.
  void use(Unit& unit) {
    auto& trace = *trace_;
    if (at_ < trace.size() && trace[at_] != &unit) {
      trace.resize(at_);
      for (auto& group : groups_)
        if (!rules_.keeps_values && !uses(unit, *group)) drop(*group);
    }
    if (at_ == trace.size()) trace.push_back(&unit);
    ++at_;
    for (Group* group : groups_of(unit)) gather(*group);
    for (Group* group : groups_of(unit)) wait(*group);
    if (at_ < trace.size())
      for (Group* group : groups_of(*trace[at_])) gather(*group);
    if (reducing_ && reducing_->reduction.test()) settle(*reducing_);
  }
  void leave(Unit& unit) {
    if (rules_.keeps_values) return;
    for (Group* group : groups_of(unit))
      if (at_ == trace_->size() || !uses(*(*trace_)[at_], *group)) drop(*group);
  }

  const std::vector<Group*>& groups_of(Unit& unit) {
    auto& groups = groups_of_[&unit];
    if (groups.empty())
      for (ParameterState* state : unit.parameters)
        if (Group* group = group_of_.at(state); std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
    return groups;
  }
  bool uses(Unit& unit, Group& group) {
    const auto& groups = groups_of(unit);
    return std::find(groups.begin(), groups.end(), &group) != groups.end();
  }

  // Bytes go as words: a gather does not ask what they mean.
  std::span<std::int64_t> words(const Buffer& buffer, std::size_t bytes) const { return {static_cast<std::int64_t*>(buffer.get()), bytes / sizeof(std::int64_t)}; }

  void gather(Group& group) {
    if (group.here || group.gathering) return;
    const std::size_t bytes = group.piece * group.value_bytes;
    if (!rules_.keeps_values) group.values = device_->allocate(bytes * comm_.size());
    group.gather = comm_.all_gather_async(words(group.shard, bytes), words(group.values, bytes * comm_.size()));
    group.gathering = true;
  }
  void wait(Group& group) {
    if (!group.gathering) return;
    group.gather.wait();
    group.gathering = false;
    group.here = true;
    for (const Member& member : group.members) member.state->gathered->value = at(group.values, member.first * group.value_bytes);
  }
  void drop(Group& group) {
    if (group.gathering) wait(group);
    group.here = false;
    for (const Member& member : group.members) member.state->gathered->value.reset();
    if (!rules_.keeps_values) group.values.reset();
  }

  void reduce(Group& group) {
    open(group);
    group.leaving = group.gradients;
    if (!rules_.keeps_gradients) {
      for (const Member& member : group.members) member.state->gathered->gradient.reset();
      group.gradients.reset();
    }
    // The first sum of a step goes to its place; where that is a part of the input, or holds the sum of earlier micro-batches, beside it.
    if (rules_.keeps_gradients || group.reduced) group.sum = device_->allocate(group.piece * group.gradient_bytes);
    dispatch_gradient(group, [&](auto zero) {
      using G = decltype(zero);
      G* out = static_cast<G*>((group.sum ? group.sum : group.shard_gradient).get());
      group.reduction = comm_.reduce_scatter_async(std::span<const G>(static_cast<const G*>(group.leaving.get()), group.piece * comm_.size()), std::span<G>(out, group.piece));
    });
    reducing_ = &group;
  }
  void settle(Group& group) {
    group.reduction.wait();
    if (group.sum)
      dispatch_gradient(group, [&](auto zero) {
        using G = decltype(zero);
        const G* sum = static_cast<const G*>(group.sum.get());
        G* shard = static_cast<G*>(group.shard_gradient.get());
        if (group.reduced) kernels::accumulate<G, G>(*device_, group.piece, sum, shard);
        else kernels::cast<G, G>(*device_, group.piece, sum, shard);
      });
    for (const Member& member : group.members)
      if (member.state->kept() != 0) member.state->gradient = at(group.shard_gradient, member.kept * group.gradient_bytes);
    group.reduced = true;
    group.sum.reset();
    group.leaving.reset();
    reducing_ = nullptr;
  }
  // Gradients are never narrower than float.
  template <class F>
  static void dispatch_gradient(const Group& group, F&& f) {
    if (group.gradient_bytes == sizeof(float)) f(float{});
    else f(double{});
  }

  Communicator comm_;
  Device<Exec>* device_;
  std::uint64_t seed_;
  ShardRules rules_;
  bool each_micro_batch_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::map<const ParameterState*, Group*> group_of_;
  std::map<const Unit*, std::vector<Group*>> groups_of_;
  std::vector<Unit*> traces_[2];  // by whether the run trains: units in the order of their use
  std::vector<Unit*>* trace_ = &traces_[0];
  std::size_t at_ = 0;
  Group* reducing_ = nullptr;
};

}  // namespace weft::detail
