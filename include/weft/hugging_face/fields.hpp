// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fields of another program's JSON file, read one by one. A field that was not read throws an Error with its name: a model
// that ignored it might compute something else than the program that wrote it.
//
//   Fields fields = Fields::open("gpt2/config.json");
//   const std::size_t layers = fields.count("n_layer");
//   fields.require_all_read();   // throws if anything is left

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/file_system.hpp>
#include <weft/checkpoint/json.hpp>

namespace weft::hugging_face::detail {

using checkpoint::FileSystem;
using checkpoint::detail::refuse;
using checkpoint::detail::shown;

inline constexpr std::uint64_t largest_json = checkpoint::detail::largest_header;
inline constexpr int deepest_json = 16;
inline constexpr std::size_t most_parts = 4096;  // limit of layers or experts

/// The text of a file. Throws Error if it is too long.
inline std::string read_text(const std::string& path, FileSystem& system) {
  const checkpoint::detail::File file = checkpoint::detail::File::open(system, path, true);  // Hugging Face's cache consists of
                                                                                             // links
  if (file.length() > largest_json) refuse({path}, {"has ", file.length(), " bytes, more than ", largest_json});
  std::string text(file.length(), '\0');
  file.read(text.data(), text.size(), 0);
  return text;
}

/// The JSON object in a file's text. Throws Error if it is nested too deeply, repeats a key, or is not an object.
inline nlohmann::json parse_json(const std::string& path, const std::string& text) {
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > deepest_json) refuse({path}, {"its JSON is nested deeper than ", deepest_json, " levels"});
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second)
      refuse({path}, {"the key ", shown(value.get<std::string>()), " comes twice"});
    return true;
  };
  try {
    nlohmann::json json = nlohmann::json::parse(text, check);
    if (!json.is_object()) refuse({path}, {"its JSON is no object"});
    return json;
  } catch (const nlohmann::json::exception& error) {
    refuse({path}, {"is not the JSON that it should be: ", shown(error.what())});
  }
}

inline nlohmann::json read_json(const std::string& path, FileSystem& system) { return parse_json(path, read_text(path, system)); }

class Fields {
 public:
  static constexpr std::uint64_t most = std::uint64_t(1) << 40;  ///< limit of any count

  /// `within`: the name of the enclosing field, for messages.
  Fields(std::string path, nlohmann::json object, std::string within = {})
      : path_(std::move(path)), object_(std::move(object)), within_(std::move(within)) {}
  static Fields open(const std::string& path, FileSystem& system = FileSystem::system()) {
    return Fields(path, read_json(path, system));
  }

  const std::string& path() const { return path_; }
  /// True if the field exists and is not null.
  bool has(const std::string& name) const { return object_.contains(name) && !object_.at(name).is_null(); }
  bool is_null(const std::string& name) const { return object_.contains(name) && object_.at(name).is_null(); }

  /// A whole number of at least 1; `other` if the field does not exist. Throws Error for a missing field without `other`.
  std::size_t count(const std::string& name, std::optional<std::size_t> other = std::nullopt) {
    if (!take(name, other.has_value())) return *other;
    const nlohmann::json& value = object_.at(name);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() == 0 || value.get<std::uint64_t>() > most)
      unexpected(name, "a whole number of 1 to 2^40");
    return value.get<std::size_t>();
  }
  /// The same for a number of parts, such as layers: a damaged number would otherwise take hours, or all memory.
  std::size_t parts(const std::string& name, std::optional<std::size_t> other = std::nullopt) {
    const std::size_t number = count(name, other);
    if (number > most_parts) unexpected(name, "a whole number of 1 to 4096");
    return number;
  }
  double number(const std::string& name, std::optional<double> other = std::nullopt) {
    if (!take(name, other.has_value())) return *other;
    const nlohmann::json& value = object_.at(name);
    if (!value.is_number() || !std::isfinite(value.get<double>())) unexpected(name, "a finite number");
    return value.get<double>();
  }
  bool flag(const std::string& name, bool other) {
    if (!take(name, true)) return other;
    if (!object_.at(name).is_boolean()) unexpected(name, "true or false");
    return object_.at(name).get<bool>();
  }
  std::string text(const std::string& name, std::optional<std::string> other = std::nullopt) {
    if (!take(name, other.has_value())) return *other;
    if (!object_.at(name).is_string()) unexpected(name, "a text");
    return object_.at(name).get<std::string>();
  }
  /// A list of numbers; empty if the field does not exist.
  std::vector<double> numbers(const std::string& name) {
    std::vector<double> all;
    if (!take(name, true)) return all;
    if (!object_.at(name).is_array()) unexpected(name, "a list of numbers");
    for (const nlohmann::json& value : object_.at(name)) {
      if (!value.is_number() || !std::isfinite(value.get<double>())) unexpected(name, "a list of finite numbers");
      all.push_back(value.get<double>());
    }
    return all;
  }
  /// A list of texts; empty if the field does not exist.
  std::vector<std::string> texts(const std::string& name) {
    std::vector<std::string> all;
    if (!take(name, true)) return all;
    if (!object_.at(name).is_array()) unexpected(name, "a list of texts");
    for (const nlohmann::json& value : object_.at(name)) {
      if (!value.is_string()) unexpected(name, "a list of texts");
      all.push_back(value.get<std::string>());
    }
    return all;
  }
  /// The object in a field; empty if it does not exist. The caller calls its require_all_read().
  Fields fields(const std::string& name) {
    const std::string place = within_.empty() ? name : within_ + "." + name;
    if (!take(name, true)) return Fields(path_, nlohmann::json::object(), place);
    if (!object_.at(name).is_object()) unexpected(name, "an object");
    return Fields(path_, object_.at(name), place);
  }
  /// A field that must have this value if it exists, since weft's models support no other.
  void require(const std::string& name, const nlohmann::json& value, std::string_view why) {
    if (!take(name, true) || object_.at(name) == value) return;
    refuse({path_},
           {called(name), " is ", shown(object_.at(name).dump()), ", and weft's model has ", shown(value.dump()), ": ", why});
  }
  /// Marks fields that change no logit as read.
  void ignore(std::span<const char* const> names) {
    for (const char* name : names) taken_.insert(name);
  }
  void ignore(std::initializer_list<const char*> names) {
    for (const char* name : names) taken_.insert(name);
  }
  /// Throws Error if fields are left that were not read and are not null.
  void require_all_read() const {
    std::string left;
    for (const auto& [name, value] : object_.items())
      if (!taken_.contains(name) && !value.is_null()) left += (left.empty() ? "" : ", ") + called(name);
    if (!left.empty())
      refuse({path_}, {"has fields that this version of weft does not read: ", shown(left),
                       ". It may change what the model computes, so it is not ignored"});
  }
  /// Throws Error: the field does not hold the expected kind of value.
  [[noreturn]] void unexpected(const std::string& name, std::string_view meant) const {
    if (!object_.contains(name)) refuse({path_}, {"lacks ", called(name), ": ", meant, " is meant"});
    refuse({path_}, {called(name), " is ", shown(object_.at(name).dump()), ": ", meant, " is meant"});
  }

 private:
  std::string called(const std::string& name) const { return shown(within_.empty() ? name : within_ + "." + name); }
  bool take(const std::string& name, bool optional) {
    taken_.insert(name);
    if (has(name)) return true;
    if (!optional) refuse({path_}, {"lacks ", called(name)});
    return false;
  }

  std::string path_;
  nlohmann::json object_;
  std::string within_;
  std::set<std::string> taken_;
};

}  // namespace weft::hugging_face::detail
