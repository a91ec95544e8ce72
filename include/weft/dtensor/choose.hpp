// SPDX-License-Identifier: Apache-2.0
#pragma once
// The choice of the placements for an operation: those that its operands have, if its rule takes them, otherwise the ones whose
// redistributions move the fewest bytes. The choice uses only the shapes and placements of the whole, so all ranks make the same.
//
//   const Choice choice = choose(rule, operands, result_shape, axes);
//   choice.operands[0], choice.result, choice.bytes

#include <cstddef>
#include <span>
#include <vector>

#include <weft/dtensor/sharding.hpp>
#include <weft/tensor/placement_rules.hpp>

namespace weft::dtensor {

/// The bytes that the busiest rank receives in a redistribution of a tensor: for n ranks of an axis and B bytes, (n - 1) / n B in
/// a gather, an exchange and a reduce-scatter, twice as many in an all-reduce, none in a local step. `weighted`: a byte over axis
/// a counts axes[a].cost times.
double moved_bytes(const Shape& shape, std::size_t element_bytes, std::span<const AxisPlace> axes, const Placements& from,
                   const Placements& to, bool weighted = false);

namespace detail {

using weft::detail::AxisLayout;
using weft::detail::OperationRule;

struct OperandInfo {
  Shape shape;
  std::size_t element_bytes;
  Placements placements;
};

struct Choice {
  std::vector<Placements> operands;  ///< of each operand
  Placements result;
  double bytes = 0;  ///< moved to bring the operands there, without the operation's own messages
};

/// The choice with the fewest bytes. Ties go to the result with the fewest partial axes, then to the fewest changed placements,
/// then to the first choice: whole operands before cut ones, earlier dims before later ones.
Choice choose(const OperationRule& rule, std::span<const OperandInfo> operands, const Shape& result,
              const std::vector<AxisPlace>& axes);

}  // namespace detail

}  // namespace weft::dtensor

#ifndef WEFT_COMPILED
#include <weft/dtensor/choose_impl.hpp>
#endif
