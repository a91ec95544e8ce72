// SPDX-License-Identifier: Apache-2.0
#pragma once
// The elements that a rank holds of a parameter that is cut over an axis.
//
//   shard_parameter(info, 0, {.segments = {{out, heads}}}, "tp", context.size(tp{}), context.rank(tp{}));

#include <string_view>

#include <weft/engine/hooks.hpp>

namespace weft::detail {

// One rank's part of a segment of the sharded dim.
struct Piece {
  std::size_t first = 0, local = 0, valid = 0;  // first global element; elements here; valid ones of them
  int replicas = 1;
  bool owned = true;
};

// Sets local shape, runs and replicas of a parameter cut along `dim`.
void shard_parameter(ParameterInfo& info, std::size_t dim, const ParameterSharding& cut, std::string_view axis, std::size_t ranks,
                     std::size_t rank);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/engine/parameter_sharding_impl.hpp>
#endif
