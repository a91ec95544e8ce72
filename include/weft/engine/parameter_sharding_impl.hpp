// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/parameter_sharding.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/engine/parameter_sharding.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE Piece shard_segment(const ParameterInfo& info, const ParameterSharding::Segment& segment, bool padded,
                                          std::string_view axis, std::size_t ranks, std::size_t rank) {
  const std::size_t units = segment.units ? segment.units : segment.extent, width = segment.extent / units;
  if (padded) {
    const std::size_t local = (units + ranks - 1) / ranks, first = std::min(units, rank * local);
    return {first, local, std::min(local, units - first), 1, true};
  }
  if (units % ranks == 0) return {rank * (units / ranks) * width, units / ranks * width, units / ranks * width, 1, true};
  if (segment.units && ranks % units == 0) {
    const std::size_t replicas = ranks / units;
    return {rank / replicas * width, width, width, int(replicas), rank % replicas == 0};
  }
  throw_error<LayoutError>({"parameter ", info.name, " ", info.global.text(), ": ", units, segment.units ? " heads" : " elements",
                            " cannot be cut by ", axis, "(", ranks, ")"});
}

WEFT_COLD WEFT_INLINE void shard_parameter(ParameterInfo& info, std::size_t dim, const ParameterSharding& cut,
                                           std::string_view axis, std::size_t ranks, std::size_t rank) {
  if (dim >= info.global.rank())
    throw_error<LayoutError>({"parameter ", info.name, " ", info.global.text(), " has no dim ", dim, ", which its rule Shard<",
                              axis, ", ", dim, "> cuts"});
  std::vector<ParameterSharding::Segment> segments = cut.segments;
  if (segments.empty()) segments.push_back({info.global[dim], 0});
  std::vector<Piece> pieces;
  std::size_t local = 0, total = 0;
  for (const auto& segment : segments) {
    pieces.push_back(shard_segment(info, segment, cut.padded, axis, ranks, rank));
    local += pieces.back().local;
    total += segment.extent;
    info.replicas = std::max(info.replicas, pieces.back().replicas);
  }
  if (total != info.global[dim])
    throw_error<ShapeError>(
        {"parameter ", info.name, " ", info.global.text(), ": its segments along dim ", dim, " add up to ", total});
  std::size_t outer = 1, inner = 1;
  for (std::size_t d = 0; d < dim; ++d) outer *= info.global[d];
  for (std::size_t d = dim + 1; d < info.global.rank(); ++d) inner *= info.global[d];
  info.local[dim] = local;
  if (ranks > 1) {
    const bool replicated = std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.replicas > 1; });
    const bool padding = cut.padded && local * ranks != total;
    info.local.set_sharding(dim, replicated            ? DimSharding::replicated
                                 : segments.size() > 1 ? DimSharding::segments
                                 : padding             ? DimSharding::padded
                                                       : DimSharding::even);
  }
  std::vector<Run> row;
  std::size_t before = 0, here = 0;
  for (std::size_t s = 0; s < pieces.size(); ++s) {
    const Piece& piece = pieces[s];
    if (piece.valid)
      row.push_back({here * inner, (before + piece.first) * inner, piece.valid * inner, piece.owned, piece.replicas > 1});
    here += piece.local;
    before += segments[s].extent;
  }
  info.runs = Runs::of_rows(row, outer, local * inner, total * inner);
}

}  // namespace weft::detail
