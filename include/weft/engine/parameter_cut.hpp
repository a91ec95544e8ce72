// SPDX-License-Identifier: Apache-2.0
#pragma once
// The two cuts of a parameter: over an axis that its rule names (tp, cp, etp), and over data ranks, whatever its shape. From both
// follows which of its elements any rank keeps, without asking it (engine/parameter_pieces.hpp).
//
//   Linear<Column>(context, in, out, {.sharding = {{{out, heads}}}});   // cut by whole heads

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft {

/// The cut of a sharded dim: into segments that are cut one by one (query, key and value in one matrix). A segment may have fewer
/// units than there are ranks; several ranks then hold the same unit.
struct ParameterSharding {
  struct Segment {
    std::size_t extent = 0;  ///< elements along the sharded dim
    std::size_t units = 0;   ///< indivisible parts (heads); 0: every element is a unit
  };
  std::vector<Segment> segments;  ///< empty: one segment, the whole dim
  bool padded = false;  ///< each rank holds ceil(extent / ranks) elements, of which the last ranks have fewer valid (vocabulary)
};

namespace detail {

/// The cut of a parameter along one dim, over the ranks of the axis of its rule.
struct AxisCut {
  std::string_view axis;
  std::size_t ranks = 1, dim = 0;  ///< one rank: it is whole
  ParameterSharding sharding = {};
};

/// The cut of a flat array of parameters into equal pieces, seen from one of them. Counts are of elements.
struct FlatCut {
  std::size_t first = 0;  ///< of the parameter in the array
  std::size_t piece = 0;  ///< that each rank keeps
  std::size_t ranks = 1;

  /// The range of the parameter's `size` local elements that this rank keeps: empty if both ends are equal.
  std::pair<std::size_t, std::size_t> kept_by(std::size_t rank, std::size_t size) const {
    const auto within = [&](std::size_t at) { return std::clamp(at, first, first + size) - first; };
    return {within(rank * piece), within((rank + 1) * piece)};
  }
};

}  // namespace detail

}  // namespace weft
