// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arithmetic that says so when a count does not fit: counts in weft are std::size_t, libraries below it take int.

#include <concepts>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include <weft/core/error.hpp>

namespace weft {

/// `value` as a To; throws Error if it does not fit. `what` names the number in the message.
template <std::integral To, std::integral From>
constexpr To narrow(From value, const char* what = "a count") {
  if (!std::in_range<To>(value))
    throw Error(std::string(what) + " " + std::to_string(value) + " does not fit into " + std::to_string(sizeof(To)) + " bytes");
  return static_cast<To>(value);
}

/// a * b; throws Error on overflow.
constexpr std::size_t checked_multiply(std::size_t a, std::size_t b, const char* what = "a size") {
  if (a != 0 && b > std::numeric_limits<std::size_t>::max() / a)
    throw Error(std::string(what) + " overflows: " + std::to_string(a) + " * " + std::to_string(b));
  return a * b;
}

}  // namespace weft
