// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for operations/einsum.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <string>

#include <weft/core/inline.hpp>
#include <weft/operations/einsum.hpp>

namespace weft::detail {

WEFT_INLINE std::string text_of(const Letters& letters) {
  return std::string(letters.of.data(), static_cast<std::size_t>(letters.count));
}

WEFT_OUT_OF_LINE WEFT_INLINE EinsumExtents einsum_extents(const Equation& e, const EinsumPlan& plan, NamedOperand x,
                                                          NamedOperand y) {
  const auto name = [&] {
    return call_text("einsum<\"" + text_of(e.x) + "," + text_of(e.y) + "->" + text_of(e.result) + "\">", {x, y});
  };
  const auto require_letters = [&](const Letters& letters, const Shape& shape) {
    if (letters.count == 0 ? shape.size() != 1 : shape.rank() != std::size_t(letters.count))
      throw_error<ShapeError>(
          {name(), ": \"", text_of(letters), "\" has ", letters.count, " letters, and the operand ", shape.rank(), " dims"});
  };
  require_letters(e.x, x.shape());
  require_letters(e.y, y.shape());
  const auto in = [&](const Letters& letters, char letter, const Shape& shape, std::size_t& extent, DimSharding& sharding) {
    const int dim = letters.find(letter);
    if (dim < 0) return;
    extent = shape[std::size_t(dim)];
    if (shape.sharding(std::size_t(dim)) > sharding) sharding = shape.sharding(std::size_t(dim));
  };
  EinsumExtents out;
  out.result = Shape::of_rank(std::size_t(e.result.count == 0 ? 1 : e.result.count));
  if (e.result.count == 0) out.result[0] = 1;
  const auto multiply = [&](const Letters& letters, std::size_t& product) {
    for (int i = 0; i < letters.count; ++i) {
      const char letter = letters[i];
      std::size_t in_x = 0, in_y = 0;
      DimSharding sharding = DimSharding::even;
      in(e.x, letter, x.shape(), in_x, sharding);
      in(e.y, letter, y.shape(), in_y, sharding);
      if (has(e.x, letter) && has(e.y, letter) && in_x != in_y)
        throw_error<ShapeError>({name(), ": the dims '", std::string(1, letter), "' have ", in_x, " and ", in_y, " elements"});
      const std::size_t extent = has(e.x, letter) ? in_x : in_y;
      product *= extent;
      const int dim = e.result.find(letter);
      if (dim < 0) continue;
      out.result[std::size_t(dim)] = extent;
      out.result.set_sharding(std::size_t(dim), sharding);
    }
  };
  multiply(plan.batch, out.batch);
  multiply(plan.left, out.left);
  multiply(plan.right, out.right);
  multiply(plan.summed, out.summed);
  return out;
}

}  // namespace weft::detail
