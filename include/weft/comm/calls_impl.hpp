// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/calls.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <cstdint>
#include <string_view>

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

WEFT_INLINE void expect_no_overlap(const Call& call, std::size_t in, std::size_t out, std::ptrdiff_t apart) {
  const auto first = reinterpret_cast<std::uintptr_t>(call.input), second = reinterpret_cast<std::uintptr_t>(call.output);
  const std::size_t element = size_of(call.type);
  if (in == 0 || out == 0 || first + in * element <= second || second + out * element <= first) return;
  if (apart != never_in_place && std::ptrdiff_t(second - first) == apart * std::ptrdiff_t(element)) return;
  const std::string_view in_place = apart == never_in_place ? "."
                                    : in == out             ? ", or the same memory."
                                    : in > out              ? ", or let the output be this rank's piece of the input."
                                                            : ", or let the input be this rank's piece of the output.";
  throw_error<UsageError>(
      {name_of(call.operation),
       ": the input and the output overlap, so that other ranks would read results in place of the input; give "
       "them separate memory",
       in_place});
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
