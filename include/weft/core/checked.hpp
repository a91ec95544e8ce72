// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checked integer arithmetic. Counts in weft are std::size_t, but the underlying libraries take int: a count that does not fit
// throws Error.
//
//   const int n = detail::narrow<int>(elements, "elements of a message");

#include <concepts>
#include <cstddef>
#include <limits>
#include <utility>

#include <weft/core/error.hpp>

namespace weft::detail {

/// Converts `value` to To; throws Error if it does not fit. `what` names the number in the message.
template <std::integral To, std::integral From>
constexpr To narrow(From value, const char* what = "a count") {
  if (!std::in_range<To>(value)) throw_error<Error>({what, " ", value, " does not fit into ", sizeof(To), " bytes"});
  return static_cast<To>(value);
}

/// a * b; throws Error on overflow.
constexpr std::size_t checked_multiply(std::size_t a, std::size_t b, const char* what = "a size") {
  if (a != 0 && b > std::numeric_limits<std::size_t>::max() / a) throw_error<Error>({what, " overflows: ", a, " * ", b});
  return a * b;
}

}  // namespace weft::detail
