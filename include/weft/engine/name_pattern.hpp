// SPDX-License-Identifier: Apache-2.0
#pragma once
// Patterns of parameter names, by which programs choose the trained parameters and their settings. A pattern without a match is
// usually a typing error, so it is refused, with the names that resemble it.
//
//   matches("encoder.*.bias", "encoder.blocks.3.mlp.in.bias")   // true: `*` matches any characters, dots as well

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/communicator.hpp>

namespace weft::detail {

/// Whether the whole name is the pattern, in which `*` matches any number of characters, also none, and `?` one.
bool matches(std::string_view pattern, std::string_view name);
bool matches_any(std::span<const std::string_view> patterns, std::string_view name);

/// The names that resemble the pattern most, at most `count`, the nearest first.
std::vector<std::string> names_near(std::string_view pattern, const std::vector<std::string>& names, std::size_t count = 3);

/// The same as a text, for a refusal: "a, b, c", or "none".
std::string text_of_names_near(std::string_view pattern, const std::vector<std::string>& names);

/// Whether each pattern matches one of the names, 1 or 0.
std::vector<std::int32_t> found_by(std::span<const std::string_view> patterns, const std::vector<std::string>& names);
/// Throws UsageError for the first pattern that was not found on any rank.
void require_found(std::span<const std::int32_t> found, const std::vector<std::string>& names,
                   std::span<const std::string_view> patterns, std::string_view who);

/// Throws UsageError on all ranks of `everyone` if ranks give other patterns, or if a pattern matches none of any rank's `names`;
/// `who` names their source.
void require_matches(const Communicator& everyone, const std::vector<std::string>& names,
                     std::span<const std::string_view> patterns, std::string_view who);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/engine/name_pattern_impl.hpp>
#endif
