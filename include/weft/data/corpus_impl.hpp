// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for data/corpus.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/data/corpus.hpp>

namespace weft::data {

WEFT_INLINE void Corpus::require(std::size_t length) const {
  const auto check = [&](const char* part, std::size_t size) {
    if (size > length) return;
    throw UsageError(std::string("data: too short: the ") + part + " part has " + std::to_string(size) + " of " +
                     std::to_string(bytes()) + " bytes (validation fraction " + shown(fraction_) + "), a sequence of " +
                     std::to_string(length) + " needs " + std::to_string(length + 1));
  };
  check("training", training_.size());
  if (fraction_ > 0) check("validation", validation_.size());
}

WEFT_INLINE std::string Corpus::read_file(const std::string& file) {
  const auto fail = [&](int error) -> UsageError {
    return UsageError("data: cannot read '" + file + "': " +
                      (error == ENOENT   ? "there is no such file"
                       : error == EISDIR ? "it is a folder, a text file is needed"
                                         : std::strerror(error != 0 ? error : EIO)));
  };
  struct Opened {
    std::FILE* in;
    ~Opened() {
      if (in != nullptr) std::fclose(in);
    }
  };
  errno = 0;
  const Opened opened{std::fopen(file.c_str(), "rb")};
  if (opened.in == nullptr) throw fail(errno);
  std::string text;
  char block[1 << 16];
  errno = 0;
  while (const std::size_t count = std::fread(block, 1, sizeof block, opened.in)) text.append(block, count);
  if (std::ferror(opened.in)) throw fail(errno);
  if (text.empty()) throw UsageError("data: cannot read '" + file + "': it is empty (0 bytes)");
  return text;
}

WEFT_INLINE void Corpus::append(std::string_view text) {
  const auto kept_back = static_cast<std::size_t>(std::floor(static_cast<double>(text.size()) * fraction_));
  const std::size_t border = text.size() - kept_back;
  training_.insert(training_.end(), text.begin(), text.begin() + static_cast<std::ptrdiff_t>(border));
  validation_.insert(validation_.end(), text.begin() + static_cast<std::ptrdiff_t>(border), text.end());
  ++files_;
}

WEFT_INLINE std::string Corpus::shown(double number) {
  std::string text = std::to_string(number);
  text.erase(text.find_last_not_of('0') + 1);
  if (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

}  // namespace weft::data
