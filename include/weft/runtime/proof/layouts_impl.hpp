// SPDX-License-Identifier: Apache-2.0
#pragma once
// The degrees, stages and schedules of a proof. Definitions for runtime/proof/layouts.hpp.

#include <functional>
#include <string>

#include <weft/core/inline.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/runtime/proof/layouts.hpp>

namespace weft::runtime::detail {

WEFT_COLD WEFT_INLINE std::vector<ProofLayout> layouts_of(const ProofNotes& one, int ranks, int least) {
  const auto is_rest = [](const std::string& name) { return name == "dp" || name == "edp"; };
  bool expert = false, dense = false, dp = false, edp = false;
  for (const ProofNotes::Axis& axis : one.axes) {
    expert = expert || axis.expert;
    dense = dense || (!axis.expert && axis.name != "pp");
    dp = dp || axis.name == "dp";
    edp = edp || axis.name == "edp";
  }
  dense = dense || !expert;
  std::vector<ProofLayout> layouts;
  const auto add = [&](int size, const std::vector<std::size_t>& degrees) {
    std::size_t in_dense = 1, in_expert = 1;
    for (std::size_t i = 0; i < degrees.size(); ++i) {
      const ProofNotes::Axis& axis = one.axes[i];
      if (axis.name == "pp" || !axis.expert) in_dense *= degrees[i];
      if (axis.name == "pp" || axis.expert) in_expert *= degrees[i];
    }
    const auto fits = [size](std::size_t product, bool has_rest) {
      return has_rest ? std::size_t(size) % product == 0 : std::size_t(size) == product;
    };
    if ((dense && !fits(in_dense, dp)) || (expert && !fits(in_expert, edp))) return;
    ProofLayout layout{.ranks = size};
    for (std::size_t i = 0; i < degrees.size(); ++i) {
      const std::string& name = one.axes[i].name;
      layout.degrees.push_back({name, name == "dp"    ? std::size_t(size) / in_dense
                                      : name == "edp" ? std::size_t(size) / in_expert
                                                      : degrees[i]});
    }
    std::size_t sharing = layout.degree("dp");  // ranks that share the state
    for (const auto& [name, degree] : layout.degrees)
      if (one.over_domain && weft::detail::names_domain_axis(name)) sharing *= degree;
    const bool stages = one.stage_is_open && sharing > 1, schedules = one.schedule_is_open && layout.degree("pp") > 1;
    for (int stage = stages ? 0 : -1; stage <= (stages ? 3 : -1); ++stage)
      for (int schedule = 0; schedule <= (schedules ? int(ProofLayout::Schedule::zbv) : 0); ++schedule) {
        layout.stage = stage;
        layout.schedule = ProofLayout::Schedule(schedule);
        layouts.push_back(layout);
      }
  };
  for (int size = least; size <= ranks; ++size) {
    std::vector<std::size_t> degrees(one.axes.size(), 1);
    const std::function<void(std::size_t)> choose = [&](std::size_t axis) {
      if (axis == degrees.size()) return add(size, degrees);
      for (std::size_t degree = 1; degree <= (is_rest(one.axes[axis].name) ? 1 : std::size_t(size)); ++degree)
        if (std::size_t(size) % degree == 0) {
          degrees[axis] = degree;
          choose(axis + 1);
        }
      degrees[axis] = 1;
    };
    choose(0);
  }
  return layouts;
}

}  // namespace weft::runtime::detail
