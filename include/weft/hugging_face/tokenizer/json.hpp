// SPDX-License-Identifier: Apache-2.0
#pragma once
// The JSON of a tokenizer.json, parsed with nlohmann's SAX parser and limits. Vocabulary and merges, nearly all of the file, go
// into plain arrays; the rest becomes a JSON value. Repeated keys are refused.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/hugging_face/tokenizer/error.hpp>

namespace weft::hugging_face::detail {

/// Texts in one buffer, without an allocation per text.
class Texts {
 public:
  void push_back(std::string_view text) {
    letters_ += text;
    ends_.push_back(std::uint32_t(letters_.size()));
  }
  std::size_t size() const { return ends_.size(); }
  std::string_view operator[](std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(letters_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string letters_;
  std::vector<std::uint32_t> ends_;
};

struct TokenizerJson {
  nlohmann::json rest = nlohmann::json::object();  // everything except model.vocab and model.merges
  bool has_vocabulary = false, has_merges = false;
  Texts tokens;                   // keys of model.vocab
  std::vector<std::int32_t> ids;  // their ids
  bool merges_are_pairs = false;  // ["a", "b"], two texts each; otherwise one text "a b"
  Texts merges;
};

/// Parses the text of a tokenizer.json. Throws TokenizerError.
class TokenizerJsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  static constexpr std::size_t most_bytes = 100'000'000, most_tokens = std::size_t(1) << 22, most_merges = std::size_t(1) << 22;

  static TokenizerJson read(std::string_view text, const std::string& file) {
    if (text.size() > most_bytes)
      refuse_tokenizer(file, "", {"it has ", text.size(), " bytes, a tokenizer.json has at most ", most_bytes});
    // nlohmann's parser treats this byte as the end of the text and would ignore the rest.
    if (const std::size_t at = text.find('\0'); at != text.npos)
      refuse_tokenizer(file, "", {"it is not JSON: byte ", at, " is 0, which no JSON text has"});
    TokenizerJsonReader reader(file);
    nlohmann::json::sax_parse(text.begin(), text.end(), static_cast<nlohmann::json_sax<nlohmann::json>*>(&reader));
    if (!reader.is_object_) refuse_tokenizer(file, "", {"its JSON is no object"});
    return std::move(reader.out_);
  }

  bool null() override { return value(nullptr); }
  bool boolean(bool is) override { return value(is); }
  bool number_integer(std::int64_t number) override { return value(number); }
  bool number_unsigned(std::uint64_t number) override {
    if (place_ != Place::vocabulary) return value(number);
    if (number >= most_tokens) fail("model.vocab", {"has the id ", number, ", and weft takes those below ", most_tokens});
    out_.ids.push_back(std::int32_t(number));
    return true;
  }
  bool number_float(double number, const std::string&) override { return value(number); }
  bool string(std::string& text) override {
    if (place_ == Place::merges) {
      if (out_.merges_are_pairs) wrong_value();
      return add_merge(text);
    }
    if (place_ != Place::pair) return value(text);
    if (++in_pair_ > 2) wrong_value();
    return add_merge(text);
  }
  bool binary(nlohmann::json::binary_t&) override { return value(nullptr); }

  bool start_object(std::size_t) override {
    if (place_ == Place::rest && is_at("vocab")) {
      out_.has_vocabulary = true;
      place_ = Place::vocabulary;
      return true;
    }
    return open(nlohmann::json::object());
  }
  bool key(std::string& name) override {
    if (place_ == Place::vocabulary) {
      if (out_.tokens.size() == most_tokens) fail("model.vocab", {"has more than ", most_tokens, " tokens"});
      out_.tokens.push_back(name);
      return true;
    }
    nlohmann::json& object = *open_.back();
    if (object.contains(name) ||
        (open_.size() == 2 && ((name == "vocab" && out_.has_vocabulary) || (name == "merges" && out_.has_merges))))
      fail("", {"the key ", weft::detail::shown(name), " comes twice"});
    if (open_.size() == 1) in_model_ = name == "model";
    key_ = name;
    return true;
  }
  bool end_object() override { return close(Place::vocabulary); }

  bool start_array(std::size_t) override {
    if (place_ == Place::rest && is_at("merges")) {
      out_.has_merges = true;
      place_ = Place::merges;
      return true;
    }
    if (place_ == Place::merges) {
      if (!out_.merges_are_pairs && out_.merges.size() > 0) wrong_value();
      out_.merges_are_pairs = true;
      place_ = Place::pair;
      in_pair_ = 0;
      return true;
    }
    return open(nlohmann::json::array());
  }
  bool end_array() override {
    if (place_ == Place::pair) {
      if (in_pair_ != 2) wrong_value();
      place_ = Place::merges;
      return true;
    }
    return close(Place::merges);
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
    std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    if (const std::size_t from = what.find(": "); from != what.npos) what.remove_prefix(from + 2);
    fail("", {"it is not JSON: byte ", position > 0 ? position - 1 : 0, ": ", weft::detail::shown(what)});
  }

 private:
  enum class Place : std::uint8_t { rest, vocabulary, merges, pair };
  static constexpr std::size_t deepest = 12, most_values = std::size_t(1) << 20;

  explicit TokenizerJsonReader(const std::string& file) : file_(file) {}

  [[noreturn]] void fail(const std::string& field, weft::detail::Words what) const { refuse_tokenizer(file_, field, what); }
  [[noreturn]] void wrong_value() const {
    if (place_ == Place::vocabulary)
      fail("model.vocab", {"has something else than an id for ", weft::detail::shown(last_token())});
    fail("model.merges", {"are neither all texts \"a b\" nor all pairs [\"a\", \"b\"]"});
  }
  std::string last_token() const { return std::string(out_.tokens[out_.tokens.size() - 1]); }
  bool is_at(std::string_view name) const { return open_.size() == 2 && in_model_ && key_ == name; }
  bool add_merge(std::string_view text) {
    if (out_.merges.size() == 2 * most_merges) fail("model.merges", {"are more than ", most_merges});
    out_.merges.push_back(text);
    return true;
  }

  nlohmann::json& add(nlohmann::json json) {
    if (++values_ > most_values) fail("", {"has more than ", most_values, " values beside its vocabulary and merges"});
    nlohmann::json& parent = *open_.back();
    if (parent.is_array()) return parent.emplace_back(std::move(json));
    return parent[key_] = std::move(json);
  }
  bool value(nlohmann::json json) {
    if (place_ != Place::rest) wrong_value();
    if (open_.empty()) return true;  // the whole text is a single scalar
    if (is_at("vocab") || is_at("merges"))
      fail("model." + key_, {"is ", weft::detail::shown(json.dump(-1, ' ', true)), ", a table is meant"});
    add(std::move(json));
    return true;
  }
  bool open(nlohmann::json json) {
    if (place_ != Place::rest) wrong_value();
    if (open_.size() == deepest) fail("", {"its JSON is nested deeper than ", deepest, " levels"});
    if (is_at("vocab") || is_at("merges"))
      fail("model." + key_, {"is a list in place of an object, or an object in place of a list"});
    if (open_.empty()) {
      is_object_ = json.is_object();
      if (!is_object_) fail("", {"its JSON is no object"});
      open_.push_back(&out_.rest);
    } else {
      open_.push_back(&add(std::move(json)));
    }
    return true;
  }
  bool close(Place table) {
    if (place_ == table) place_ = Place::rest;
    else open_.pop_back();
    return true;
  }

  std::string file_, key_;
  TokenizerJson out_;
  std::vector<nlohmann::json*> open_;  // a container moves only when its parent grows, and by then it is closed
  Place place_ = Place::rest;
  bool is_object_ = false, in_model_ = false;
  std::size_t values_ = 0, in_pair_ = 0;
};

}  // namespace weft::hugging_face::detail
