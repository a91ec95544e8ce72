// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/calls.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/calls.hpp>
#include <weft/core/inline.hpp>

namespace weft::calls::detail {

WEFT_INLINE std::size_t total(Operation operation, const char* what, std::span<const std::size_t> counts, int size) {
  expect(operation, what, counts.size(), std::size_t(size));
  std::size_t sum = 0;
  for (const std::size_t count : counts) {
    if (count > std::numeric_limits<std::size_t>::max() - sum)
      throw_error<ShapeError>({name_of(operation), ": the sum of ", what, " overflows"});
    sum += count;
  }
  return sum;
}

WEFT_INLINE void expect_reducible(Operation operation, Reduction reduction, DataType type) {
  const bool real =
      type == DataType::float16 || type == DataType::bfloat16 || type == DataType::float32 || type == DataType::float64;
  if (reduction == Reduction::average && !real)
    throw_error<UsageError>(
        {name_of(operation), ": the average of ", name_of(type), " is not a ", name_of(type), "; sum and divide"});
}

}  // namespace weft::calls::detail

namespace weft::calls {

WEFT_INLINE Call all_reduce(const comm::Elements& inout, Reduction reduction) {
  detail::expect_reducible(Operation::all_reduce, reduction, inout.type);
  return {.operation = Operation::all_reduce,
          .type = inout.type,
          .reduction = reduction,
          .memory = inout.memory,
          .count = inout.count,
          .input = inout.data,
          .output = inout.data,
          .combine = inout.combine};
}

}  // namespace weft::calls
