// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shared parameters of a rank whose gradients are added at the end of a step: those that several of its chunks use (a tied
// embedding if both ends of the model are here), whose gradients are ready when all chunks are, and those that several stages
// use, whose ranks add up their gradients. If gradients are separate terms (reproducible runs), every parameter that several
// units use is among them, because the way in which data ranks share it must not depend on where the stages are.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <weft/autograd/parameter.hpp>
#include <weft/comm/communicator.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/gradient_accumulator.hpp>
#include <weft/engine/registry.hpp>

namespace weft::detail {

class Ties {
 public:
  /// Takes one parameter of the model; all ranks call it for the same parameters in the same order. stage_of(unit) and
  /// rank_of(unit) give the place of each unit. Returns true if this rank adds up the gradient here, so that no unit owns it.
  /// `separate_uses`: GradientAccumulator::separates_terms. Collective over the pipeline.
  template <class Context, class StageOf, class RankOf>
  WEFT_COLD bool add(const Context& context, const Registered& parameter, const StageOf& stage_of, const RankOf& rank_of,
                     bool separate_uses) {
    const int rank = static_cast<int>(context.rank(pp{}));
    std::vector<int> holders;
    std::vector<std::size_t> stages_here;
    for (const std::size_t unit : parameter.uses) {
      if (std::find(holders.begin(), holders.end(), rank_of(unit)) == holders.end()) holders.push_back(rank_of(unit));
      if (rank_of(unit) == rank && std::find(stages_here.begin(), stages_here.end(), stage_of(unit)) == stages_here.end())
        stages_here.push_back(stage_of(unit));
    }
    std::sort(holders.begin(), holders.end());
    Tie tie{parameter.state.get(), nullptr, {}};
    const bool held = std::find(holders.begin(), holders.end(), rank) != holders.end();
    if constexpr (Context::has(pp{})) {
      if (holders.size() > 1) {
        tie.holders = ranks_of(context.comm(pp{}), holders);
        for (const std::size_t unit : parameter.uses)
          tie.uses.push_back(int(std::find(holders.begin(), holders.end(), rank_of(unit)) - holders.begin()));
        if (rank_of(parameter.uses.front()) != rank) tie.state->storage().count_elsewhere();
      }
    }
    const bool several = separate_uses ? parameter.uses.size() > 1 : holders.size() > 1 || stages_here.size() > 1;
    if (!held || !several) return false;
    units_.push_back({"tied " + tie.state->name(), {tie.state}});
    ties_.push_back(std::move(tie));
    return true;
  }

  std::span<const Tie> all() const { return {ties_.data(), ties_.size()}; }
  /// One unit per tie, in the same order.
  std::vector<Unit>& units() { return units_; }

 private:
  // All ranks of the pipeline see the same holders, so all make the same split.
  WEFT_COLD std::shared_ptr<const Communicator> ranks_of(const Communicator& pipeline, const std::vector<int>& holders) {
    for (const Group& group : groups_)
      if (group.holders == holders) return group.ranks;
    const auto mine = std::find(holders.begin(), holders.end(), pipeline.rank());
    const int before = int(std::count_if(holders.begin(), holders.end(), [&](int other) { return other < pipeline.rank(); }));
    const bool held = mine != holders.end();
    const int all = int(holders.size());
    const comm::SplitPlace place =
        held ? comm::SplitPlace{before, all} : comm::SplitPlace{pipeline.rank() - before, pipeline.size() - all};
    groups_.push_back(
        {holders, std::make_shared<const Communicator>(pipeline.split(held ? 0 : 1, pipeline.rank(), "pp", place))});
    return groups_.back().ranks;
  }

  struct Group {
    std::vector<int> holders;
    std::shared_ptr<const Communicator> ranks;
  };
  std::vector<Tie> ties_;
  std::vector<Unit> units_;
  std::vector<Group> groups_;
};

}  // namespace weft::detail
