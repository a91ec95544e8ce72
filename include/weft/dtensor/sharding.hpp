// SPDX-License-Identifier: Apache-2.0
#pragma once
// The layout of a DTensor on the axes of its mesh, as values: placements as in torch.distributed.tensor, its rule for uneven
// shards, and the steps from one layout to another. No data is moved here.
//
//   dtensor::Placements rows = {dtensor::shard(0), dtensor::replicate()};   // one per axis of the mesh, in its order

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/operation.hpp>
#include <weft/core/error.hpp>
#include <weft/tensor/shape.hpp>

namespace weft::dtensor {

/// The placement on one axis: each rank holds its chunk of a dim, the whole value, or a term of a reduction.
struct AxisPlacement {
  enum class Kind { replicate, shard, partial } kind = Kind::replicate;
  int dim = 0;                           ///< of shard; negative: counted from the last
  Reduction reduction = Reduction::sum;  ///< of partial

  bool is_shard() const { return kind == Kind::shard; }
  bool is_partial() const { return kind == Kind::partial; }
  bool is_replicate() const { return kind == Kind::replicate; }
  friend bool operator==(const AxisPlacement& a, const AxisPlacement& b) {
    return a.kind == b.kind && (!a.is_shard() || a.dim == b.dim) && (!a.is_partial() || a.reduction == b.reduction);
  }
};
/// A placement for each axis of the mesh, in their order, as torch's list of placements.
using Placements = std::vector<AxisPlacement>;

/// Each rank of the axis holds the whole value.
inline AxisPlacement replicate() { return {}; }
/// Each rank of the axis holds its chunk of `dim` (chunk_of).
inline AxisPlacement shard(int dim) { return {AxisPlacement::Kind::shard, dim, Reduction::sum}; }
/// Each rank of the axis holds a term of the reduction.
inline AxisPlacement partial(Reduction reduction = Reduction::sum) { return {AxisPlacement::Kind::partial, 0, reduction}; }

/// A placement, a list of placements or axes as messages show them.
std::string text(const AxisPlacement& placement);
inline std::string text(const Placements& placements) {
  std::string all;
  for (const AxisPlacement& placement : placements) all += (all.empty() ? "" : ", ") + text(placement);
  return "[" + all + "]";
}

/// One chunk of a dim: its first index and its length.
struct Chunk {
  std::size_t first = 0, length = 0;
};
/// torch.chunk's rule: chunks of ceil(extent / ranks), the last ones shorter or empty. 10 over 4: 3, 3, 3, 1; 5: 2, 2, 1, 0.
constexpr Chunk chunk_of(std::size_t extent, std::size_t ranks, std::size_t rank) {
  const std::size_t length = (extent + ranks - 1) / ranks, first = std::min(extent, rank * length);
  return {first, std::min(length, extent - first)};
}

/// An axis of a mesh: its name, its size, this rank's number on it, and the cost of a byte over it relative to other axes.
struct AxisPlace {
  std::string_view name;
  std::size_t ranks = 1, rank = 0;
  double cost = 1;
};

std::string text(const std::vector<AxisPlace>& axes);

/// The placements with negative dims resolved, checked for a tensor of this shape on these axes. Throws UsageError for a wrong
/// number of placements, a dim that does not exist, and partial placements whose reductions do not commute (sum with max).
Placements checked(const Shape& shape, const std::vector<AxisPlace>& axes, Placements placements);

/// A rank's part of the whole: its shape, and the index of its first element along each dim. Several axes that shard one dim
/// divide it one after the other, from the first axis to the last.
struct Part {
  Shape shape, first;
};
/// The part of the rank at `axes` of a tensor of this shape.
Part part_of(const Shape& shape, const std::vector<AxisPlace>& axes, const Placements& placements);

/// A change of one axis' placement, by one collective or none.
struct Step {
  std::size_t axis;
  AxisPlacement from, to;
  friend bool operator==(const Step&, const Step&) = default;
};

/// The steps between two layouts. A shard can only be gathered while no later axis shards the same dim. So first, from the last
/// axis backwards, every shard is removed that the target does not have in the same position. A shard that only moves to another
/// dim does so in one all-to-all, if that dim's earlier shards are final. Then, from the first axis on, the target is built.
std::vector<Step> steps_between(Placements now, const Placements& target);

}  // namespace weft::dtensor

#ifndef WEFT_COMPILED
#include <weft/dtensor/sharding_impl.hpp>
#endif
