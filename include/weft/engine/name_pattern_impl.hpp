// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/name_pattern.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <numeric>

#include <weft/comm/agree.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/name_pattern.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE bool matches(std::string_view pattern, std::string_view name) {
  constexpr std::size_t none = std::string_view::npos;
  std::size_t p = 0, n = 0, star = none, tried = 0;  // the last `*`, and the character of the name that it ends before
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      tried = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != none) {
      p = star + 1;
      n = ++tried;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + std::ptrdiff_t(p), pattern.end(), [](char c) { return c == '*'; });
}

WEFT_COLD WEFT_INLINE bool matches_any(std::span<const std::string_view> patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) { return matches(pattern, name); });
}

WEFT_COLD WEFT_INLINE std::vector<std::string> names_near(std::string_view pattern, const std::vector<std::string>& names,
                                                          std::size_t count) {
  // Levenshtein's distance, but `*` takes any number of characters for nothing.
  const auto distance = [&](std::string_view name) {
    std::vector<std::size_t> row(name.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t(0));
    for (const char c : pattern) {
      std::size_t diagonal = row[0];
      if (c != '*') ++row[0];
      for (std::size_t n = 1; n <= name.size(); ++n) {
        const std::size_t above = row[n];
        row[n] = c == '*' ? std::min(row[n], row[n - 1])
                          : std::min({diagonal + (c == '?' || c == name[n - 1] ? 0 : 1), row[n] + 1, row[n - 1] + 1});
        diagonal = above;
      }
    }
    return row[name.size()];
  };
  std::vector<std::pair<std::size_t, std::size_t>> ranked;
  for (std::size_t i = 0; i < names.size(); ++i) ranked.push_back({distance(names[i]), i});
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> near;
  for (std::size_t i = 0; i < std::min(count, ranked.size()); ++i) near.push_back(names[ranked[i].second]);
  return near;
}

WEFT_COLD WEFT_INLINE std::string text_of_names_near(std::string_view pattern, const std::vector<std::string>& names) {
  std::string near;
  for (const std::string& name : names_near(pattern, names)) append_to(near, {near.empty() ? "" : ", ", name});
  return near.empty() ? "none" : near;
}

WEFT_COLD WEFT_INLINE std::vector<std::int32_t> found_by(std::span<const std::string_view> patterns,
                                                         const std::vector<std::string>& names) {
  std::vector<std::int32_t> found(patterns.size());
  for (std::size_t k = 0; k < patterns.size(); ++k)
    found[k] = std::any_of(names.begin(), names.end(), [&](const std::string& name) { return matches(patterns[k], name); });
  return found;
}

WEFT_COLD WEFT_INLINE void require_found(std::span<const std::int32_t> found, const std::vector<std::string>& names,
                                         std::span<const std::string_view> patterns, std::string_view who) {
  for (std::size_t k = 0; k < patterns.size(); ++k) {
    if (found[k]) continue;
    throw_error<UsageError>({who, ": \"", patterns[k], "\" names none of the ", names.size(),
                             " parameters of the model; near it are ", text_of_names_near(patterns[k], names)});
  }
}

WEFT_COLD WEFT_INLINE void require_matches(const Communicator& everyone, const std::vector<std::string>& names,
                                           std::span<const std::string_view> patterns, std::string_view who) {
  std::uint64_t given = patterns.size();
  for (const std::string_view pattern : patterns) given = hash_of(given, hash_bytes(pattern.data(), pattern.size()));
  const std::uint64_t words[] = {given};
  if (const auto found = difference(everyone, words))
    throw_error<UsageError>(
        {who, ": rank ", found->rank, " gives other patterns than rank 0: all ranks call it with the same ones"});
  std::vector<std::int32_t> found = found_by(patterns, names);
  if (everyone.size() > 1 && !found.empty()) everyone.all_reduce(found, Reduction::max);
  require_found(found, names, patterns, who);
}

}  // namespace weft::detail
