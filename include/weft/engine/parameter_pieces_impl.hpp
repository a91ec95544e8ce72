// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/parameter_pieces.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <map>
#include <string_view>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/engine/parameter_pieces.hpp>
#include <weft/engine/parameter_sharding.hpp>

namespace weft::detail {

// The runs of the elements that layers use on the ranks with that coordinate along the axis that cuts the parameter.
WEFT_COLD WEFT_INLINE Runs local_runs_of(const ParameterInfo& info, std::size_t coordinate) {
  const AxisCut& cut = info.cut;
  if (cut.ranks == 1) return info.runs;
  ParameterInfo there = info;
  shard_parameter(there, cut.dim, cut.sharding, cut.axis, cut.ranks, coordinate);
  return std::move(there.runs);
}

// A rank's coordinate along one axis of a grid; 0 if the grid has no such axis.
struct Coordinate {
  std::size_t stride = 1, size = 1;
  Coordinate(const mesh_layout::RankGrid& grid, std::string_view name) {
    if (!grid.has(name)) return;
    for (const mesh_layout::RankAxis& axis : grid.axes()) {
      size = axis.size;
      if (axis.name == name) return;
      stride *= axis.size;
    }
  }
  std::size_t of(std::size_t rank) const { return rank / stride % size; }
};

// The axes of a grid whose ranks share a parameter out, as a mask of RankGrid::place.
WEFT_COLD WEFT_INLINE unsigned data_axes(const mesh_layout::RankGrid& grid, std::string_view data, bool domain) {
  unsigned mask = 0;
  for (std::size_t i = 0; i < grid.axes().size(); ++i) {
    const std::string_view name = grid.axes()[i].name;
    if (name == data || (domain && names_domain_axis(name))) mask |= 1u << i;
  }
  return mask;
}

WEFT_COLD WEFT_INLINE ParameterPieces pieces_of(const ParameterState& state, const mesh_layout::RankGrids& grids,
                                                std::size_t rank) {
  const ParameterInfo& info = state.info();
  const FlatCut* const shared = state.storage().sharder() ? &state.storage().kept().cut : nullptr;
  const bool of_experts = info.expert_data.has_value();
  const mesh_layout::RankGrid& grid = of_experts || grids.dense.axes().empty() ? grids.expert : grids.dense;
  const Coordinate stage(grid, "pp"), experts(grid, of_experts ? "ep" : ""), cut(grid, info.cut.axis);
  const unsigned data = data_axes(grid, of_experts ? "edp" : "dp", (state.sharded() & domain_axes) != 0);
  ParameterPieces all;
  constexpr std::size_t nothing = SIZE_MAX;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> known;  // by the coordinates of both cuts
  for (std::size_t other = 0; other < grid.size(); ++other) {
    if (stage.of(other) != stage.of(rank) || experts.of(other) != experts.of(rank)) continue;  // it has other parameters
    const std::size_t part = cut.of(other), share = shared ? grid.place(other, data).member % shared->ranks : 0;
    const auto [at, is_new] = known.try_emplace({part, share}, all.pieces.size());
    if (is_new) {
      const auto [begin, end] = shared ? shared->kept_by(share, state.size()) : std::pair(std::size_t(0), state.size());
      if (begin == end) at->second = nothing;
      else if (shared) all.pieces.push_back(local_runs_of(info, part).cut(begin, end));
      else all.pieces.push_back(local_runs_of(info, part));
    }
    if (at->second != nothing) all.holders.push_back({other, at->second});
  }
  return all;
}

}  // namespace weft::detail
