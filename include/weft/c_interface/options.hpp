// SPDX-License-Identifier: Apache-2.0
#pragma once
// Options of the C interface: a text of KEY=VALUE pairs separated by spaces. Each value is read once by its name and type; pairs
// that nobody has read are an error with the names that were asked for.
//
//   const Options options("model mlp", "inputs=3 hidden=64,64");
//   options.number<std::size_t>("inputs", 1);   // 3

#include <charconv>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <weft/core/error.hpp>

namespace weft::c_interface {

/// The KEY=VALUE words that functions of weft.h take.
class Options {
 public:
  /// `of` names the object in errors. Throws UsageError for a word that is no pair, and for a key that comes twice.
  Options(std::string of, std::string_view text) : of_(std::move(of)) {
    while (!text.empty()) {
      const std::size_t begin = text.find_first_not_of(" \t\n");
      if (begin == std::string_view::npos) break;
      const std::size_t end = std::min(text.find_first_of(" \t\n", begin), text.size());
      const std::string_view word = text.substr(begin, end - begin);
      const std::size_t equals = word.find('=');
      if (equals == std::string_view::npos || equals == 0 || equals + 1 == word.size())
        throw_error<UsageError>({of_, ": '", word, "' is not KEY=VALUE"});
      if (!pairs_.emplace(word.substr(0, equals), word.substr(equals + 1)).second)
        throw_error<UsageError>({of_, ": ", word.substr(0, equals), " is given twice"});
      text.remove_prefix(end);
    }
  }

  std::string text(const std::string& key, std::string_view otherwise) const {
    asked_.insert(key);
    const auto at = pairs_.find(key);
    return at == pairs_.end() ? std::string(otherwise) : at->second;
  }
  /// Throws UsageError for a value that is no number of this type.
  template <class T>
  T number(const std::string& key, T otherwise) const {
    asked_.insert(key);
    const auto at = pairs_.find(key);
    return at == pairs_.end() ? otherwise : parsed<T>(key, at->second);
  }
  /// Numbers separated by commas.
  template <class T>
  std::vector<T> numbers(const std::string& key, std::vector<T> otherwise) const {
    asked_.insert(key);
    const auto at = pairs_.find(key);
    if (at == pairs_.end()) return otherwise;
    std::vector<T> all;
    for (std::string_view rest = at->second;;) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      all.push_back(parsed<T>(key, rest.substr(0, comma)));
      if (comma == rest.size()) return all;
      rest.remove_prefix(comma + 1);
    }
  }

  /// Throws UsageError if a key was never asked for.
  void require_all_read() const {
    for (const auto& [key, value] : pairs_)
      if (asked_.count(key) == 0) {
        std::string names;
        for (const std::string& name : asked_) names += (names.empty() ? "" : ", ") + name;
        throw_error<UsageError>({of_, ": there is no option ", key, "; there are ", names});
      }
  }

 private:
  template <class T>
  T parsed(const std::string& key, std::string_view value) const {
    T number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size())
      throw_error<UsageError>({of_, ": ", key, "=", value, " is not a number of this option's type"});
    return number;
  }

  std::string of_;
  std::map<std::string, std::string> pairs_;
  mutable std::set<std::string> asked_;
};

}  // namespace weft::c_interface
