// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/tied_parameters.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <algorithm>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/pipeline/tied_parameters.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE bool Ties::add(const AxesInForce& axes, const Registered& parameter, std::span<const std::size_t> stage_of,
                                     std::span<const int> rank_of, bool separate_uses) {
  const int rank = int(axes.rank(pp{}));
  std::vector<int> holders;
  std::vector<std::size_t> stages_here;
  for (const std::size_t unit : parameter.uses) {
    if (std::find(holders.begin(), holders.end(), rank_of[unit]) == holders.end()) holders.push_back(rank_of[unit]);
    if (rank_of[unit] == rank && std::find(stages_here.begin(), stages_here.end(), stage_of[unit]) == stages_here.end())
      stages_here.push_back(stage_of[unit]);
  }
  std::sort(holders.begin(), holders.end());
  Tie tie{parameter.state.get(), nullptr, {}};
  const bool held = std::find(holders.begin(), holders.end(), rank) != holders.end();
  if (holders.size() > 1) {  // over several ranks, so there is a pipeline
    tie.holders = ranks_of(axes.comm(pp{}), holders);
    for (const std::size_t unit : parameter.uses)
      tie.uses.push_back(int(std::find(holders.begin(), holders.end(), rank_of[unit]) - holders.begin()));
    if (rank_of[parameter.uses.front()] != rank) tie.state->storage().count_elsewhere();
  }
  const bool several = separate_uses ? parameter.uses.size() > 1 : holders.size() > 1 || stages_here.size() > 1;
  if (!held || !several) return false;
  units_.push_back({"tied " + tie.state->name(), {tie.state}});
  ties_.push_back(std::move(tie));
  return true;
}

// All ranks of the pipeline see the same holders, so all make the same split.
WEFT_COLD WEFT_INLINE std::shared_ptr<const Communicator> Ties::ranks_of(const Communicator& pipeline,
                                                                         const std::vector<int>& holders) {
  for (const Group& group : groups_)
    if (group.holders == holders) return group.ranks;
  const auto mine = std::find(holders.begin(), holders.end(), pipeline.rank());
  const int before = int(std::count_if(holders.begin(), holders.end(), [&](int other) { return other < pipeline.rank(); }));
  const bool held = mine != holders.end();
  const int all = int(holders.size());
  const comm::SplitPlace place =
      held ? comm::SplitPlace{before, all} : comm::SplitPlace{pipeline.rank() - before, pipeline.size() - all};
  groups_.push_back({holders, std::make_shared<const Communicator>(pipeline.split(held ? 0 : 1, pipeline.rank(), "pp", place))});
  return groups_.back().ranks;
}

}  // namespace weft::detail
