// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a parameter is cut over an axis, and which of its elements a rank then holds.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <weft/layer/hooks.hpp>

namespace weft {

/// How a sharded dim is cut: into segments that are cut one by one (query, key and value in one matrix), of which a segment
/// may have fewer units than there are ranks and is then held alike by several.
struct ParameterSharding {
  struct Segment {
    std::size_t extent = 0;  ///< elements along the sharded dim
    std::size_t units = 0;   ///< indivisible parts (heads); 0: every element may stand alone
  };
  std::vector<Segment> segments;  ///< empty: one segment, the whole dim
  bool padded = false;            ///< ranks hold ceil(extent / ranks) elements, the last ones fewer valid (vocabulary)
};

namespace detail {

// One segment of the sharded dim as a rank holds it.
struct Piece {
  std::size_t first = 0, local = 0, valid = 0;  // first global element, elements here, of which valid
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
