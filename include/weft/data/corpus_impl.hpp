// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reading of text files and the split into two parts. Definitions for data/corpus.hpp.

#include <algorithm>

#include <weft/core/inline.hpp>
#include <weft/core/input_file.hpp>
#include <weft/data/corpus.hpp>

namespace weft::data {

WEFT_INLINE void Corpus::require(std::size_t length) const {
  const auto check = [&](const char* part, std::size_t size) {
    if (size > length) return;
    throw_error<UsageError>({"data: too short: the ", part, " part has ", size, " of ", bytes(), " bytes (validation fraction ",
                             shown(fraction_), "), a sequence of ", length, " needs ", length + 1});
  };
  check("training", training_.size());
  if (fraction_ > 0) check("validation", validation_.size());
}

WEFT_INLINE std::string Corpus::read_file(const std::string& file, std::size_t before) {
  const std::uint64_t most = weft::detail::half_of_memory();
  const weft::detail::InputFile input("data", file, "text file", most);
  if (input.size() == 0) input.refuse({"it is empty (0 bytes)"});
  if (input.size() > most - std::min<std::uint64_t>(most, before))
    input.refuse({"it has ", input.size(), " bytes, and with ", before, " of the files before it the text is more than ", most,
                  ", half of this machine's memory; token files (.bin) are not held in memory"});
  return input.read();
}

WEFT_INLINE void Corpus::append(const std::string& name, std::string_view text) {
  const auto kept_back = static_cast<std::size_t>(std::floor(static_cast<double>(text.size()) * fraction_));
  const std::size_t border = text.size() - kept_back;
  training_.insert(training_.end(), text.begin(), text.begin() + static_cast<std::ptrdiff_t>(border));
  validation_.insert(validation_.end(), text.begin() + static_cast<std::ptrdiff_t>(border), text.end());
  identity_.add(DataIdentity(name, text.data(), text.size()));
  ++files_;
}

WEFT_INLINE std::string Corpus::shown(double number) {
  std::string text = std::to_string(number);
  text.erase(text.find_last_not_of('0') + 1);
  if (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

}  // namespace weft::data
