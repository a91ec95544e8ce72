// SPDX-License-Identifier: Apache-2.0
#pragma once
// The cut of a parameter over an axis, and the elements of it that a rank holds.
//
//   Linear<Column>(context, in, out, {.sharding = {{{out, heads}}}});   // cut by whole heads

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <weft/layer/hooks.hpp>

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

// One rank's part of a segment of the sharded dim.
struct Piece {
  std::size_t first = 0, local = 0, valid = 0;  // first global element; elements here; valid ones of them
  int replicas = 1;
  bool owned = true;
};

Piece shard_segment(const ParameterInfo& info, const ParameterSharding::Segment& segment, bool padded, std::string_view axis,
                    std::size_t ranks, std::size_t rank);

// Sets local shape, runs and replicas of a parameter cut along `dim`.
void shard_parameter(ParameterInfo& info, std::size_t dim, const ParameterSharding& cut, std::string_view axis, std::size_t ranks,
                     std::size_t rank);

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/layer/parameter_sharding_impl.hpp>
#endif
