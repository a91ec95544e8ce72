// SPDX-License-Identifier: Apache-2.0
#pragma once
// The base of the readers of JSON headers and indexes: nlohmann's SAX parser with limits. Unexpected values and repeated keys
// throw Error. Only the reader stores parts of the text, so memory is proportional to the actual contents, not to announced
// sizes.
//
//   struct Reader : JsonReader { bool key(std::string& name) override { ... } };
//   parse_json(reader, text);

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <weft/checkpoint/error.hpp>

namespace weft::checkpoint::detail {

inline constexpr std::uint64_t largest_header = 100'000'000;  // bytes, as in the safetensors format
inline constexpr std::size_t deepest_json = 8, longest_name = 4096, most_dims = 32;

/// Derived readers track the position of a value. Each event that they do not override throws Error.
class JsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonReader(std::string file, std::uint64_t begin) : file_(std::move(file)), begin_(begin) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(std::int64_t) override { return unexpected("a negative number"); }
  bool number_unsigned(std::uint64_t) override { return unexpected("a number"); }
  bool number_float(double, const std::string&) override { return unexpected("a number that is not whole, or too large"); }
  bool string(std::string&) override { return unexpected("a text"); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }
  bool start_array(std::size_t) override { return unexpected("an array"); }
  bool end_array() override { return true; }
  bool start_object(std::size_t) override { return unexpected("an object"); }
  bool end_object() override { return true; }
  bool key(std::string&) override { return unexpected("a key"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
    std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    if (const std::size_t from = what.find(": "); from != what.npos) what.remove_prefix(from + 2);
    refuse({file_, {}, begin_ + (position > 0 ? position - 1 : 0)}, {"is not the JSON that it should be: ", shown(what)});
  }
  [[noreturn]] void refuse_zero(std::size_t at) const {
    refuse({file_, {}, begin_ + at}, {"is not the JSON that it should be: a byte of value 0, which no JSON text has"});
  }

 protected:
  [[noreturn]] void fail(weft::detail::Words what, const std::string& tensor = {}) const {
    refuse({file_, tensor, Place::nowhere}, what);
  }
  bool unexpected(std::string_view what) const { fail({"its JSON has ", what, " where none belongs"}); }
  void enter() {
    if (++depth_ > deepest_json) fail({"its JSON is nested deeper than ", deepest_json, " levels"});
  }
  void leave() { --depth_; }
  std::size_t depth() const { return depth_; }

 private:
  std::string file_;
  std::uint64_t begin_;
  std::size_t depth_ = 0;
};

/// Feeds `text` to the reader. It must be one JSON value, followed only by white space.
inline void parse_json(JsonReader& reader, std::string_view text) {
  // nlohmann's parser treats this byte as the end of the text and would ignore the rest.
  if (const std::size_t at = text.find('\0'); at != text.npos) reader.refuse_zero(at);
  nlohmann::json::sax_parse(text.begin(), text.end(), static_cast<nlohmann::json_sax<nlohmann::json>*>(&reader));
}

/// A text as a JSON string, with its quotes. Throws Error if it is not UTF-8.
inline std::string json_text(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error("checkpoint: the name " + shown(text) + " is not UTF-8, as JSON's texts are");
  }
}

}  // namespace weft::checkpoint::detail
