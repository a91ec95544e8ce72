// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checks of placements, and the steps between them. Definitions for dtensor/sharding.hpp.

#include <weft/core/inline.hpp>
#include <weft/dtensor/sharding.hpp>

namespace weft::dtensor {

WEFT_INLINE std::string text(const AxisPlacement& placement) {
  if (placement.is_shard()) return "shard(" + std::to_string(placement.dim) + ")";
  if (placement.is_partial()) return "partial(" + std::string(name_of(placement.reduction)) + ")";
  return "replicate";
}

WEFT_INLINE std::string text(const std::vector<AxisPlace>& axes) {
  std::string all;
  for (const AxisPlace& axis : axes)
    all += (all.empty() ? "" : " * ") + std::string(axis.name) + "(" + std::to_string(axis.ranks) + ")";
  return all;
}

WEFT_INLINE Placements checked(const Shape& shape, const std::vector<AxisPlace>& axes, Placements placements) {
  if (placements.size() != axes.size())
    throw_error<UsageError>({"dtensor: ", placements.size(), " placements ", text(placements), " for a mesh of ", axes.size(),
                             " axes, ", text(axes)});
  const AxisPlacement* reduced = nullptr;
  const auto linear = [](Reduction reduction) { return reduction == Reduction::sum || reduction == Reduction::average; };
  for (AxisPlacement& placement : placements) {
    if (placement.is_partial()) {
      if (reduced && reduced->reduction != placement.reduction && !(linear(reduced->reduction) && linear(placement.reduction)))
        throw_error<UsageError>({"dtensor: placements ", text(placements), ": a ", text(*reduced), " and a ", text(placement),
                                 " give another value in another order"});
      reduced = &placement;
    }
    if (!placement.is_shard()) continue;
    const int rank = int(shape.rank());
    if (placement.dim < -rank || placement.dim >= rank)
      throw_error<UsageError>({"dtensor: ", text(placement), " of a tensor ", shape.text(), ": it has ", rank, " dims"});
    if (placement.dim < 0) placement.dim += rank;
  }
  return placements;
}

WEFT_INLINE Part part_of(const Shape& shape, const std::vector<AxisPlace>& axes, const Placements& placements) {
  Part part{shape, shape};
  for (std::size_t dim = 0; dim < shape.rank(); ++dim) part.first[dim] = 0;
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    if (!placements[axis].is_shard()) continue;
    const std::size_t dim = std::size_t(placements[axis].dim);
    const Chunk chunk = chunk_of(part.shape[dim], axes[axis].ranks, axes[axis].rank);
    part.first[dim] += chunk.first;
    part.shape[dim] = chunk.length;
  }
  return part;
}

WEFT_INLINE std::vector<Step> steps_between(Placements now, const Placements& target) {
  std::vector<Step> steps;
  const auto change = [&](std::size_t axis, const AxisPlacement& to) {
    if (now[axis] == to) return;
    steps.push_back({axis, now[axis], to});
    now[axis] = to;
  };
  const auto same_cuts_before = [&](std::size_t axis, int dim) {
    for (std::size_t before = 0; before < axis; ++before)
      if ((now[before] == shard(dim)) != (target[before] == shard(dim))) return false;
    return true;
  };
  for (std::size_t axis = now.size(); axis-- > 0;) {
    if (!now[axis].is_shard() || (now[axis] == target[axis] && same_cuts_before(axis, now[axis].dim))) continue;
    const bool moves = target[axis].is_shard() && !(target[axis] == now[axis]) && same_cuts_before(axis, target[axis].dim);
    const bool becomes_sum = target[axis] == partial(Reduction::sum);
    change(axis, moves || becomes_sum ? target[axis] : replicate());
  }
  for (std::size_t axis = 0; axis < now.size(); ++axis) {
    if (now[axis].is_partial() && target[axis].is_partial()) {
      if (!(now[axis] == target[axis])) change(axis, replicate());
    }
    change(axis, target[axis]);
  }
  return steps;
}

}  // namespace weft::dtensor
