// SPDX-License-Identifier: Apache-2.0
#pragma once
// The hooks of FullyShardedDataParallel. The parameters of a unit lie one after the other in one flat array, of which each data
// rank keeps an equal piece, whatever the shapes are. So one collective gathers a unit and one reduces it, without a copy on
// either side (Zhao et al., PyTorch FSDP, arXiv:2304.11277; Rajbhandari et al., ZeRO, arXiv:1910.02054).
//
//   FullyShardedHooks<Exec> hooks(data_ranks, device, options, ShardRules::of_stage(3));

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/engine/gradient_accumulator.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/parallel/fsdp/flat_parameter_group.hpp>
#include <weft/parallel/model_options.hpp>

namespace weft::detail {

template <class Exec>
class FullyShardedHooks : public Hooks {
  using Group = FlatParameterGroup<Exec>;

 public:
  FullyShardedHooks(Communicator comm, Device<Exec>& device, const ModelOptions& options, ShardRules rules);

  // Allocates nothing, because the units are not known yet: the whole parameter never exists, not even while the model is made.
  bool allocate(ParameterState& state) override;

  void prepare(std::span<Unit*> units) override;
  void lay_out_gradients() override;

  bool reduces_each_micro_batch() const override { return each_micro_batch_ || folds_; }
  bool meets_each_micro_batch() const override { return each_micro_batch_ || !settings_.rules.keeps_values; }
  bool sums_data() const override { return true; }
  bool gathers_children() const override { return true; }
  void begin_sums(GradientAccumulator& accumulator) override;

  void begin(bool training) override;
  void before_forward(Unit& unit) override { use(unit); }
  void after_forward(Unit& unit) override { leave(unit); }
  void before_backward(Unit& unit) override { use(unit); }
  void after_backward(Unit& unit) override { leave(unit); }

  void open_gradient(ParameterState& state) override;

  void gradients_ready(Unit& unit) override;
  void discard_gradients(Unit& unit) override;

  void finish() override;

 private:
  static void check(const ModelOptions& options, ShardRules rules);

  // Ranks of one copy are neighbours: dp rank = copy * sharers + place in the copy.
  ShardRanks split(Communicator all, std::string_view axis) const;
  static void require_divides(const char* what, std::size_t part, std::string_view axis, std::size_t whole);
  const ShardRanks& ranks_of(const ParameterState& state);

  // The order in which a run uses the units is learnt from the last run of the same kind. It is the same on all data ranks,
  // because they run the same schedule.
  struct Trace {
    std::vector<Unit*> uses, units;  // each use; each unit once, in the order of first uses
    void add(Unit& unit) {
      uses.push_back(&unit);
      if (std::find(units.begin(), units.end(), &unit) == units.end()) units.push_back(&unit);
    }
    void cut(std::size_t size) {
      const std::vector<Unit*> kept(uses.begin(), uses.begin() + std::ptrdiff_t(size));
      uses.clear(), units.clear();
      for (Unit* unit : kept) add(*unit);
    }
  };
  void gather_ahead();
  void use(Unit& unit);
  void leave(Unit& unit);

  const std::vector<Group*>& groups_of(Unit& unit);
  bool uses(Unit& unit, Group& group);

  void settle();
  // Sums as integers hold less than a unit: the messages between nodes of the unit before run beside this one's.
  void advance(Unit& unit);

  Device<Exec>* device_;
  ShardSettings settings_;
  std::size_t replicate_, secondary_, node_;
  bool each_micro_batch_;
  unsigned others_;               // axes that share the parameters besides that of data ranks
  bool folds_ = false;            // all micro-batches but the last leave rounded sums and are not reduced
  std::deque<ShardRanks> ranks_;  // those of dp, and of each edp
  std::vector<std::unique_ptr<Group>> groups_;
  std::map<const ParameterState*, Group*> group_of_;
  std::map<const Unit*, std::vector<Group*>> groups_of_;
  Trace traces_[2];  // by whether the run trains
  Trace* trace_ = &traces_[0];
  std::size_t at_ = 0;
  std::vector<Group*> reducing_;  // those whose reductions are running
};

template <class Exec>
FullyShardedHooks<Exec>::FullyShardedHooks(Communicator comm, Device<Exec>& device, const ModelOptions& options, ShardRules rules)
    : device_(&device),
      replicate_(options.shard.replicate),
      secondary_(options.shard.secondary),
      node_(options.shard.quantised_reduce),
      each_micro_batch_(!rules.keeps_gradients && options.shard.reduce_each_micro_batch),
      others_(options.shard.over_domain ? domain_axes : 0) {
  settings_ = {.rules = rules,
               .seed = options.seed,
               .narrow = options.numerics.reduce == DataType::bfloat16,
               .quantised = options.shard.quantised_gather,
               .secondary = options.shard.secondary != 0,
               .quantised_bits = options.shard.quantised_reduce == 0 ? 0 : options.shard.quantised_reduce_bits,
               .store = options.shard.offload.store,
               .rounds = !options.numerics.reproducible,
               .gradient = options.numerics.gradient};
  check(options, rules);
  const std::string axis(comm.axis());  // "dp", or "dp-dx"
  ranks_.push_back(split(std::move(comm), axis));
}

template <class Exec>
bool FullyShardedHooks<Exec>::allocate(ParameterState& state) {
  state.shard(*this, others_);
  if (ranks_of(state).copies.rank() != 0) state.storage().count_elsewhere();
  return true;
}

template <class Exec>
void FullyShardedHooks<Exec>::prepare(std::span<Unit*> units) {
  // One group per unit and communicator: the experts of a unit are sharded over other ranks.
  for (Unit* unit : units) {
    const std::size_t before = groups_.size();
    for (ParameterState* state : unit->parameters) {
      const ShardRanks& ranks = ranks_of(*state);
      std::size_t at = before;
      while (at < groups_.size() && groups_[at]->ranks().all.group() != ranks.all.group()) ++at;
      if (at == groups_.size()) groups_.push_back(std::make_unique<Group>(ranks, *device_, settings_));
      groups_[at]->add(state);
      group_of_[state] = groups_[at].get();
    }
    for (std::size_t at = before; at < groups_.size(); ++at) {
      groups_[at]->place();
      folds_ = folds_ || groups_[at]->gradients.folds();
    }
  }
}

template <class Exec>
void FullyShardedHooks<Exec>::lay_out_gradients() {
  settle();
  for (auto& group : groups_) group->gradients.lay_out();
  groups_of_.clear();
}

template <class Exec>
void FullyShardedHooks<Exec>::begin_sums(GradientAccumulator& accumulator) {
  for (auto& group : groups_)
    group->gradients.add_in_order(accumulator.order_over(std::size_t(group->ranks().all.size()), replicate_ > 1));
}

template <class Exec>
void FullyShardedHooks<Exec>::begin(bool training) {
  trace_ = &traces_[training];
  at_ = 0;
  settle();  // left by a step that ended early
  for (auto& group : groups_) group->begin(training);
  gather_ahead();
}

// A later stage of a pipeline waits for its first micro-batch: its gathers are in flight meanwhile. Below stage 3 whole values
// have memory of their own, so all are started; in stage 3 the first.
template <class Exec>
void FullyShardedHooks<Exec>::gather_ahead() {
  for (Unit* unit : trace_->units) {
    for (Group* group : groups_of(*unit)) group->values.gather();
    if (!settings_.rules.keeps_values) return;
  }
}

template <class Exec>
void FullyShardedHooks<Exec>::open_gradient(ParameterState& state) {
  group_of_.at(&state)->gradients.open();
}

template <class Exec>
void FullyShardedHooks<Exec>::gradients_ready(Unit& unit) {
  if (unit.parameters.empty()) return;
  for (ParameterState* state : unit.parameters) {
    state->take_unreduced_over_data();
    state->gradients().renew();
  }
  if (folds_ && !unit.complete) {
    for (Group* group : groups_of(unit)) group->gradients.fold();
    return;
  }
  if (settings_.quantised_bits != 0) advance(unit);
  // If a reduction holds a whole unit, only one runs at a time.
  const bool room = settings_.quantised_bits != 0 || std::all_of(reducing_.begin(), reducing_.end(), [&](Group* group) {
                      return group->gradients.stay() && !uses(unit, *group);
                    });
  if (!room) settle();
  for (Group* group : groups_of(unit)) {
    group->gradients.reduce();
    reducing_.push_back(group);
  }
}

template <class Exec>
WEFT_COLD void FullyShardedHooks<Exec>::discard_gradients(Unit& unit) {
  for (ParameterState* state : unit.parameters) state->gradients().discard();
  for (Group* group : groups_of(unit)) group->gradients.discard();
}

template <class Exec>
void FullyShardedHooks<Exec>::finish() {
  settle();
  for (auto& group : groups_) group->gradients.start_copies();
  for (auto& group : groups_) group->finish();
}

template <class Exec>
void FullyShardedHooks<Exec>::check(const ModelOptions& options, ShardRules rules) {
  if (options.data.hook)
    throw_error<UsageError>(
        {"ModelOptions::data.hook sums buckets of DataParallel, and FullyShardedDataParallel has none: leave the hook out, or "
         "use DataParallel"});
  if (options.shard.over_domain && options.numerics.recheck_every != 0)
    throw_error<UsageError>(
        {"ModelOptions: shard.over_domain sums gradients over data ranks and domain axes at once, and numerics.recheck_every "
         "compares those of data ranks: leave one of them out"});
  if (!rules.keeps_values) return;
  if (options.shard.quantised_gather)
    throw_error<UsageError>(
        {"ModelOptions::shard.quantised_gather is for stage 3 of ZeRO: stages 1 and 2 keep all parameters on every rank"});
  if (options.shard.secondary != 0)
    throw_error<UsageError>(
        {"ModelOptions::shard.secondary is for stage 3 of ZeRO: stages 1 and 2 keep all parameters on every rank"});
}

template <class Exec>
ShardRanks FullyShardedHooks<Exec>::split(Communicator all, std::string_view axis) const {
  const std::size_t ranks = std::size_t(all.size()), rank = std::size_t(all.rank());
  require_divides("replicate", replicate_, axis, ranks);
  const std::size_t sharers = ranks / replicate_;
  const std::string sharing = joined({axis, replicate_ > 1 ? " / replicate" : ""});
  ShardRanks made;
  made.all = made.sharing = all;
  if (replicate_ > 1) {
    made.sharing = all.split(int(rank / sharers), int(rank), std::string(axis), {int(rank % sharers), int(sharers)});
    made.copies =
        all.split(int(rank % sharers), int(rank), joined({axis, copies_suffix}), {int(rank / sharers), int(replicate_)});
  }
  if (secondary_ > 0) {
    require_divides("secondary", secondary_, sharing, sharers);
    made.neighbours = made.sharing.split(int(rank % sharers / secondary_), int(rank), std::string(axis),
                                         {int(rank % sharers % secondary_), int(secondary_)});
  }
  if (node_ > 0) {
    require_divides("quantised_reduce", node_, sharing, sharers);
    const std::size_t mine = rank % sharers;
    made.node = made.sharing.split(int(mine / node_), int(rank), std::string(axis), {int(mine % node_), int(node_)});
    made.between = made.sharing.split(int(mine % node_), int(rank), joined({axis, copies_suffix}),
                                      {int(mine / node_), int(sharers / node_)});
  }
  return made;
}

template <class Exec>
void FullyShardedHooks<Exec>::require_divides(const char* what, std::size_t part, std::string_view axis, std::size_t whole) {
  if (part > 0 && whole % part == 0) return;
  std::size_t below = std::min(part, whole), above = part;
  while (below > 1 && whole % below != 0) --below;
  while (above < whole && (above == 0 || whole % above != 0)) ++above;
  below = std::max<std::size_t>(1, below);
  std::string instead = joined({below});
  if (above <= whole && above != below) append_to(instead, {" or ", above});
  throw_error<LayoutError>({axis, "(", whole, ") % ", what, "(", part, ") != 0: use ", what, " ", instead});
}

template <class Exec>
const ShardRanks& FullyShardedHooks<Exec>::ranks_of(const ParameterState& state) {
  if (!state.info().expert_data) return ranks_.front();
  for (const ShardRanks& ranks : ranks_)
    if (ranks.all.group() == state.info().expert_data->group()) return ranks;
  if (others_ != 0)
    throw_error<UsageError>({"ModelOptions::shard.over_domain: ", state.name(),
                             " is of an expert, whose state the ranks of edp share; leave shard.over_domain out"});
  return ranks_.emplace_back(split(*state.info().expert_data, "edp"));
}

template <class Exec>
void FullyShardedHooks<Exec>::use(Unit& unit) {
  const std::vector<Unit*>& trace = trace_->uses;
  if (at_ < trace.size() && trace[at_] != &unit) {
    trace_->cut(at_);
    for (auto& group : groups_)
      if (!settings_.rules.keeps_values && !group->used && !uses(unit, *group)) group->values.drop();
  }
  if (at_ == trace.size()) trace_->add(unit);
  ++at_;
  for (Group* group : groups_of(unit)) group->values.gather();
  for (Group* group : groups_of(unit)) group->values.wait();
  for (Group* group : groups_of(unit)) group->used = true;
  if (at_ < trace.size())
    for (Group* group : groups_of(*trace[at_])) group->values.gather();
  if (at_ + 1 < trace.size())
    for (Group* group : groups_of(*trace[at_ + 1])) group->values.read_ahead();
  bool summed = true;
  for (Group* group : reducing_) summed = group->gradients.test() && summed;
  if (summed) settle();
}

template <class Exec>
void FullyShardedHooks<Exec>::leave(Unit& unit) {
  for (Group* group : groups_of(unit)) group->used = false;
  if (settings_.rules.keeps_values) return;
  for (Group* group : groups_of(unit))
    if (at_ == trace_->uses.size() || !uses(*trace_->uses[at_], *group)) group->values.drop();
}

template <class Exec>
const std::vector<typename FullyShardedHooks<Exec>::Group*>& FullyShardedHooks<Exec>::groups_of(Unit& unit) {
  auto& groups = groups_of_[&unit];
  if (groups.empty())
    for (ParameterState* state : unit.parameters)
      if (Group* group = group_of_.at(state); std::find(groups.begin(), groups.end(), group) == groups.end())
        groups.push_back(group);
  return groups;
}

template <class Exec>
bool FullyShardedHooks<Exec>::uses(Unit& unit, Group& group) {
  const auto& groups = groups_of(unit);
  return std::find(groups.begin(), groups.end(), &group) != groups.end();
}

template <class Exec>
void FullyShardedHooks<Exec>::advance(Unit& unit) {
  std::vector<Group*> sending;
  for (Group* group : reducing_)
    if (group->gradients.advance() || uses(unit, *group)) group->gradients.settle();
    else sending.push_back(group);
  reducing_ = std::move(sending);
}

template <class Exec>
void FullyShardedHooks<Exec>::settle() {
  for (Group* group : reducing_) group->gradients.settle();
  reducing_.clear();
}

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class FullyShardedHooks<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft::detail
#endif
