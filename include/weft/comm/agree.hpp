// SPDX-License-Identifier: Apache-2.0
#pragma once
// The comparison of the options and data of all ranks. A rank with another seed, another file or another version of a program
// computes and communicates without an error, and the run is worthless. So ranks compare their options before they begin, and
// the error names the rank that differs.
//
//   agree(world.communicator(), {{"--seed", seed}, {"--lr", learning_rate}, {"data", digest(tokens)}});
//     // UsageError: ranks disagree about --seed: rank 0 has 1, rank 1 has 2
//   if (const auto found = detail::difference(ranks, words)) throw ... found->rank ...   // a message of its own

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/text.hpp>

namespace weft {

/// An option and its value as text. Made of text, numbers, bools, optionals and lists of texts.
struct NamedValue {
  std::string name, value;

  NamedValue(std::string_view of, std::string_view text) : name(of), value(text) {}
  NamedValue(std::string_view of, const char* text) : name(of), value(text) {}
  NamedValue(std::string_view of, const std::string& text) : name(of), value(text) {}
  NamedValue(std::string_view of, bool given) : name(of), value(given ? "on" : "off") {}
  NamedValue(std::string_view of, std::integral auto number) : name(of), value(detail::joined({number})) {}
  NamedValue(std::string_view of, double number);
  NamedValue(std::string_view of, const std::vector<std::string>& texts);
  template <class T>
  NamedValue(std::string_view of, const std::optional<T>& maybe)
      : NamedValue(maybe ? NamedValue(of, *maybe) : NamedValue(of, "not given")) {}
};

/// A digest of elements as text, "93 bytes, 0f3a...": 64 bits, not secure against adversaries. Reads everything.
template <class X>
std::string digest(const X& elements);

/// Throws UsageError on all ranks, which names the first value that differs, the rank and both values, unless every rank of
/// `ranks` gives the same names and values. Collective: one all-reduce of two words if they are the same.
/// The error ends with `remedy`.
void agree(const Communicator& ranks, std::span<const NamedValue> values,
           std::string_view remedy = "all ranks of a run are started with the same options and data");
inline void agree(const Communicator& ranks, std::initializer_list<NamedValue> values) {
  agree(ranks, std::span<const NamedValue>(values.begin(), values.size()));
}

namespace detail {

/// The first rank whose words differ from those of rank 0, and its first word that does.
struct Difference {
  int rank;
  std::size_t word;
  std::uint64_t on_first, on_rank;
};
/// None if every rank gives the same words. Collective: one all-reduce of two words if they are the same. `shared`: another word
/// of each rank, for all of them, in the same all-reduce: this rank gives its own at its number, and 0 at the others.
std::optional<Difference> difference(const Communicator& ranks, std::span<const std::uint64_t> words,
                                     std::span<std::uint64_t> shared = {});

std::string digest_of(const void* data, std::size_t bytes);
/// The version of weft, byte order and scalar types, which all processes of a run must have in common. `run` compares them.
std::vector<NamedValue> of_this_build();
inline constexpr std::string_view build_remedy = "all ranks of a run start the same program, built with one version of weft";

}  // namespace detail

template <class X>
std::string digest(const X& elements) {
  return detail::digest_of(std::data(elements), std::size(elements) * sizeof(*std::data(elements)));
}

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/comm/agree_impl.hpp>
#endif
