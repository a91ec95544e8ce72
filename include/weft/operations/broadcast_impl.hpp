// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for operations/broadcast.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/operations/broadcast.hpp>

namespace weft::detail {

// The extent of a dim of the result in an operand that is aligned at its last dim; 1 if it has no such dim.
WEFT_INLINE std::size_t aligned_extent(const Shape& operand, std::size_t rank, std::size_t dim) {
  const std::size_t missing = rank - operand.rank();
  return dim < missing ? 1 : operand[dim - missing];
}

WEFT_OUT_OF_LINE WEFT_INLINE Shape broadcast_shape(const char* operation, NamedOperand x, NamedOperand y,
                                                   std::span<const CutDims> cuts) {
  const Shape &a = x.shape(), &b = y.shape();
  const std::size_t rank = std::max(a.rank(), b.rank());
  Shape shape = Shape::of_rank(rank);
  for (std::size_t dim = 0; dim < rank; ++dim) {
    const std::size_t ax = aligned_extent(a, rank, dim), by = aligned_extent(b, rank, dim);
    if (ax != by && ax != 1 && by != 1) throw_error<ShapeError>({call_text(operation, {x, y}), ": the shapes differ"});
    shape[dim] = ax == 1 ? by : ax;
    if (dim + a.rank() >= rank && ax == shape[dim]) shape.set_sharding(dim, a.sharding(dim + a.rank() - rank));
    if (dim + b.rank() >= rank && by == shape[dim])
      shape.set_sharding(dim, std::max(shape.sharding(dim), b.sharding(dim + b.rank() - rank)));
  }
  for (const CutDims& cut : cuts) {
    if (cut.x < 0 && cut.y < 0) continue;
    const std::size_t dim = cut.x >= 0 ? std::size_t(cut.x) + (rank - a.rank()) : std::size_t(cut.y) + (rank - b.rank());
    const bool both = cut.x >= 0 && cut.y >= 0;
    if (both && (dim != std::size_t(cut.y) + (rank - b.rank()) || aligned_extent(a, rank, dim) != aligned_extent(b, rank, dim)))
      throw_error<ShapeError>({call_text(operation, {x, y}), ": ", cut.axis, " cuts dim ", cut.x,
                               " of the first operand and dim ", cut.y,
                               " of the second, which are not the same dim with as many elements: aligned at their last "
                               "dims, a dim that an axis cuts is not repeated"});
    if (both) continue;
    const bool first = cut.x >= 0;
    const std::size_t whole = aligned_extent(first ? b : a, rank, dim);
    if (whole != 1 || (first ? a : b).rank() != rank)
      throw_error<ShapeError>({call_text(operation, {x, y}), ": ", cut.axis, " cuts dim ", first ? cut.x : cut.y, " of the ",
                               first ? "first" : "second",
                               " operand, and the other one is whole: it has one element there, or no "
                               "such dim, or is cut alike, to<Shard<axis, dim>>(y)"});
  }
  return shape;
}

WEFT_OUT_OF_LINE WEFT_INLINE kernels::Expansion expansion_of(const Shape& result, const Shape& x, const Shape& y) {
  kernels::Expansion expansion;
  for (std::size_t dim = 0; dim < result.rank(); ++dim)
    expansion.add(result[dim], aligned_extent(x, result.rank(), dim) == result[dim],
                  aligned_extent(y, result.rank(), dim) == result[dim]);
  expansion.finish();
  return expansion;
}

WEFT_OUT_OF_LINE WEFT_INLINE RepeatedDims repeated_dims(const Shape& result, const Shape& operand) {
  RepeatedDims out;
  kernels::Along run{1, 1, result.size()};
  bool open = false;
  for (std::size_t dim = 0; dim < result.rank(); ++dim) {
    const bool repeated = aligned_extent(operand, result.rank(), dim) != result[dim];
    if (!repeated && result[dim] == 1) continue;
    if (!repeated && open) {
      out.runs[out.count++] = run;
      run.extent = 1;
      open = false;
    }
    if (repeated) run.extent *= result[dim];
    else run.outer *= result[dim];
    open = open || repeated;
    run.inner = 1;
    for (std::size_t later = dim + 1; later < result.rank(); ++later) run.inner *= result[later];
  }
  if (open) out.runs[out.count++] = run;
  // The last run first if it is long: a row of adjacent elements becomes one number, and the other runs have little left to read.
  constexpr std::size_t long_row = 64;
  if (out.count > 1 && out.runs[out.count - 1].inner == 1 && out.runs[out.count - 1].extent >= long_row) {
    std::size_t before = 1, after = 1;
    for (std::size_t r = 0; r < out.count; ++r) {
      out.runs[r].outer *= std::exchange(before, before * out.runs[r].extent);
      kernels::Along& later = out.runs[out.count - 1 - r];
      later.inner /= std::exchange(after, after * later.extent);
    }
    std::reverse(out.runs, out.runs + out.count);
  }
  return out;
}

}  // namespace weft::detail
