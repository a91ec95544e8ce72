// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/agree.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>

#include <weft/comm/agree.hpp>
#include <weft/comm/gather_lists.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/scalar.hpp>
#include <weft/core/version.hpp>

namespace weft {

WEFT_COLD WEFT_INLINE NamedValue::NamedValue(std::string_view of, double number) : name(of) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", number);
  if (char brief[40]; std::snprintf(brief, sizeof brief, "%g", number) > 0 && std::strtod(brief, nullptr) == number)
    value = brief;
  else value = text;
}

WEFT_COLD WEFT_INLINE NamedValue::NamedValue(std::string_view of, const std::vector<std::string>& texts) : name(of) {
  for (const std::string& text : texts) value += (value.empty() ? "" : " ") + text;
}

WEFT_COLD WEFT_INLINE void agree(const Communicator& ranks, std::span<const NamedValue> values, std::string_view remedy) {
  if (ranks.size() == 1) return;
  const comm::InFunction mark(ranks, comm::ProgramFunction::agree);
  std::string mine;  // name, value, name, ..., each with a zero behind it
  for (const NamedValue& value : values) {
    mine.append(value.name).push_back('\0');
    mine.append(value.value).push_back('\0');
  }
  const std::uint64_t hash = detail::hash_bytes(mine.data(), mine.size());
  if (!detail::difference(ranks, {&hash, 1})) return;
  const std::vector<std::vector<std::uint8_t>> all = detail::gather_lists(ranks, detail::bytes_of(mine));
  const std::vector<std::string_view> first = detail::split_at_zeros(all[0]);
  for (std::size_t q = 1; q < all.size(); ++q) {
    const std::vector<std::string_view> other = detail::split_at_zeros(all[q]);
    for (std::size_t k = 0; k + 1 < std::max(first.size(), other.size()); k += 2) {
      if (k >= first.size() || k >= other.size() || first[k] != other[k]) {
        const bool only_first = k < first.size();
        throw_error<UsageError>({"ranks disagree: rank ", only_first ? 0 : long(q), " compares ",
                                 only_first ? first[k] : other[k], ", rank ", only_first ? long(q) : 0,
                                 " does not: all ranks call agree with the same names"});
      }
      if (first[k + 1] != other[k + 1])
        throw_error<UsageError>({"ranks disagree about ", first[k], ": rank 0 has ", first[k + 1], ", rank ", long(q), " has ",
                                 other[k + 1], ": ", remedy});
    }
  }
}

namespace detail {

WEFT_OUT_OF_LINE WEFT_INLINE std::optional<Difference> difference(const Communicator& ranks, std::span<const std::uint64_t> words,
                                                                  std::span<std::uint64_t> shared) {
  if (ranks.size() == 1) return std::nullopt;
  const std::uint64_t hash = hash_bytes(words.data(), words.size_bytes());
  std::array<std::uint64_t, 2> extremes{hash, ~hash};  // the largest one, and the smallest one's complement
  if (shared.empty()) {
    ranks.all_reduce(extremes, Reduction::max);
  } else {
    std::vector<std::uint64_t> all(extremes.begin(), extremes.end());
    all.insert(all.end(), shared.begin(), shared.end());
    ranks.all_reduce(all, Reduction::max);
    std::copy(all.begin(), all.begin() + 2, extremes.begin());
    std::copy(all.begin() + 2, all.end(), shared.begin());
  }
  if (extremes[0] == ~extremes[1]) return std::nullopt;
  std::vector<std::uint64_t> all(words.size() * std::size_t(ranks.size()));
  ranks.all_gather(words, all);
  for (std::size_t i = words.size(); i < all.size(); ++i)
    if (all[i] != all[i % words.size()])
      return Difference{int(i / words.size()), i % words.size(), all[i % words.size()], all[i]};
  return Difference{0, 0, 0, 0};
}

WEFT_COLD WEFT_INLINE std::string digest_of(const void* data, std::size_t bytes) {
  char text[64];
  std::snprintf(text, sizeof text, "%zu bytes, %016llx", bytes, static_cast<unsigned long long>(hash_bytes(data, bytes)));
  return text;
}

WEFT_COLD WEFT_INLINE std::vector<NamedValue> of_this_build() {
  std::string scalars;
  for (int type = 0; type <= int(DataType::float64); ++type) append_to(scalars, {type == 0 ? "" : " ", name_of(DataType(type))});
  return {{"the version of weft", version()},
          {"the byte order", std::endian::native == std::endian::little ? "little" : "big"},
          {"the size of addresses", sizeof(void*)},
          {"the operations of communicators", comm::operation_count},
          {"the scalar types", scalars}};
}

}  // namespace detail

}  // namespace weft
