// SPDX-License-Identifier: Apache-2.0
#pragma once
// A tokenizer.json converted to the parts that encode and decode. Every field is read by name, and unread fields are refused: a
// tokenizer that ignored a field might give other ids than those with which a model was trained.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/hugging_face/tokenizer/json.hpp>
#include <weft/hugging_face/tokenizer/parts.hpp>

namespace weft::hugging_face::detail {

/// An object of the file, whose fields are read one by one.
class TokenizerFields {
 public:
  /// `place`: the object's name in messages, "pre_tokenizer"; empty for the whole file.
  TokenizerFields(const std::string& file, const nlohmann::json& object, std::string place)
      : file_(file), place_(std::move(place)), object_(object) {
    if (!object.is_object())
      refuse_tokenizer(file_, place_, {"is ", weft::detail::shown(object.dump(-1, ' ', true)), ", an object is meant"});
  }
  /// True if the field exists and is not null.
  bool has(const std::string& name) {
    taken_.insert(name);
    return object_.contains(name) && !object_.at(name).is_null();
  }
  bool flag(const std::string& name) {
    if (!value(name).is_boolean()) unexpected(name, "true or false");
    return value(name).get<bool>();
  }
  bool flag(const std::string& name, bool other) { return has(name) ? flag(name) : other; }
  std::string text(const std::string& name) {
    if (!value(name).is_string()) unexpected(name, "a text");
    return value(name).get<std::string>();
  }
  std::int32_t id(const std::string& name) { return id_of(value(name), name); }
  const nlohmann::json& list(const std::string& name) {
    if (!value(name).is_array()) unexpected(name, "a list");
    return value(name);
  }
  std::vector<std::int32_t> ids(const std::string& name) {
    std::vector<std::int32_t> all;
    for (const nlohmann::json& element : list(name)) all.push_back(id_of(element, name));
    return all;
  }
  /// The object in an element of a list, or in a field.
  TokenizerFields element(const std::string& list_name, std::size_t i) {
    return {file_, list(list_name).at(i), within(list_name) + "[" + std::to_string(i) + "]"};
  }
  TokenizerFields fields(const std::string& name) { return {file_, value(name), within(name)}; }
  /// Marks a field that changes no id as read.
  void ignore(const std::string& name) { taken_.insert(name); }
  /// A field that must be null or absent.
  void require_none(const std::string& name, std::string_view why) {
    if (has(name)) refuse(name, {"is ", shown(name), ", and this weft has no ", name, ": ", why});
  }
  /// A text that must be empty, null or absent.
  void require_empty(const std::string& name) {
    if (has(name) && !text(name).empty()) refuse(name, {"is ", shown(name), ", and byte-level BPE in this weft has none"});
  }
  /// The type of the object; throws if it is not in `known`.
  std::string type(std::initializer_list<std::string_view> known) {
    const std::string is = text("type");
    std::string all;
    for (const std::string_view one : known) {
      if (is == one) return is;
      all += (all.empty() ? "" : ", ") + std::string(one);
    }
    refuse("type", {"is ", shown("type"), ", and this version of weft reads ", all});
  }
  /// Throws if fields are left that were not read.
  void require_all_read() const {
    for (const auto& [name, value] : object_.items())
      if (!taken_.contains(name))
        refuse_tokenizer(file_, within(weft::detail::shown(name)),
                         {"is not supported by this version of weft. It may change the ids, so it is not ignored"});
  }
  [[noreturn]] void unexpected(const std::string& name, std::string_view meant) const {
    refuse(name, {"is ", shown(name), ", ", meant, " is meant"});
  }
  [[noreturn]] void refuse(const std::string& name, weft::detail::Words what) const {
    refuse_tokenizer(file_, within(name), what);
  }
  const std::string& place() const { return place_; }

 private:
  std::string within(const std::string& name) const {
    return place_.empty() || name.empty() ? place_ + name : place_ + "." + name;
  }
  std::string shown(const std::string& name) const { return weft::detail::shown(object_.at(name).dump(-1, ' ', true)); }
  const nlohmann::json& value(const std::string& name) {
    if (!has(name)) refuse(name, {"is not there"});
    return object_.at(name);
  }
  std::int32_t id_of(const nlohmann::json& number, const std::string& name) const {
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() >= TokenizerJsonReader::most_tokens)
      unexpected(name, "an id, a whole number below 2^22,");
    return number.get<std::int32_t>();
  }

  const std::string& file_;
  std::string place_;
  const nlohmann::json& object_;
  std::set<std::string> taken_;
};

class TokenizerReader {
 public:
  static std::shared_ptr<const TokenizerParts> read(std::string_view text, const std::string& file) {
    TokenizerReader reader(TokenizerJsonReader::read(text, file), file);
    reader.read();
    return std::move(reader.parts_);
  }

 private:
  TokenizerReader(TokenizerJson json, const std::string& file) : file_(file), json_(std::move(json)) {}

  void read() {
    TokenizerFields fields(file_, json_.rest, "");
    if (fields.text("version") != "1.0") fields.unexpected("version", "\"1.0\"");
    fields.require_none("truncation", "it cuts no text");
    fields.require_none("padding", "it adds nothing behind a text");
    if (!fields.has("model")) fields.refuse("model", {"is not there"});
    read_model(fields.fields("model"));
    if (fields.has("normalizer")) read_normaliser(fields.fields("normalizer"));
    if (!fields.has("pre_tokenizer"))
      fields.refuse("pre_tokenizer", {"is not there, and byte-level BPE has one of type ByteLevel"});
    read_pre_tokeniser(fields.fields("pre_tokenizer"), true);
    if (fields.has("added_tokens"))
      for (std::size_t i = 0; i < fields.list("added_tokens").size(); ++i) read_added_token(fields.element("added_tokens", i));
    if (fields.has("post_processor")) read_post_processor(fields.fields("post_processor"));
    if (!fields.has("decoder")) fields.refuse("decoder", {"is not there, and byte-level BPE has one of type ByteLevel"});
    read_byte_level(fields.fields("decoder"));
    fields.require_all_read();
  }

  void read_model(TokenizerFields fields) {
    if (fields.has("type")) fields.type({"BPE"});  // files of 2020 have no type
    if (fields.has("dropout") && json_.rest.at("model").at("dropout") != 0)
      fields.refuse("dropout", {"is not 0: ids would be drawn by chance"});
    fields.require_empty("continuing_subword_prefix");
    fields.require_empty("end_of_word_suffix");
    // For words with bytes outside the vocabulary; this vocabulary has all bytes.
    if (fields.has("unk_token")) fields.text("unk_token");
    fields.flag("fuse_unk", false);
    fields.flag("byte_fallback", false);
    parts_->ignore_merges = fields.flag("ignore_merges", false);
    if (!json_.has_vocabulary) fields.refuse("vocab", {"is not there"});
    if (!json_.has_merges) fields.refuse("merges", {"is not there"});
    fields.require_all_read();
    read_vocabulary();
    read_merges();
  }

  void read_vocabulary() {
    parts_->tokens = std::move(json_.tokens);
    const Texts& tokens = parts_->tokens;
    parts_->ids.reserve(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (!parts_->ids.emplace(tokens[i], json_.ids[i]).second)
        refuse_tokenizer(file_, "model.vocab", {"has the token ", weft::detail::shown(tokens[i]), " twice"});
      name(json_.ids[i], tokens[i], "model.vocab");
    }
    for (int byte = 0; byte < 256; ++byte) {
      const auto token = parts_->ids.find(ByteAlphabet::get().character(static_cast<unsigned char>(byte)));
      if (token == parts_->ids.end())
        refuse_tokenizer(file_, "model.vocab", {"lacks a token for the byte ", byte, ": it would be lost"});
      parts_->byte_ids[std::size_t(byte)] = token->second;
    }
  }
  /// Sets the decoded bytes of an id.
  void name(std::int32_t id, std::string_view token, const std::string& field) {
    // Memory is proportional to the file, not to a number in it.
    if (const std::size_t most = 65536 + 4 * parts_->tokens.size(); std::size_t(id) >= most)
      refuse_tokenizer(file_, field,
                       {"has the id ", id, ", and with ", parts_->tokens.size(), " tokens weft takes those below ", most});
    if (std::size_t(id) >= parts_->bytes.size()) {
      parts_->bytes.resize(std::size_t(id) + 1);
      parts_->special.resize(std::size_t(id) + 1);
      named_.resize(std::size_t(id) + 1);
    }
    if (named_[std::size_t(id)])
      refuse_tokenizer(file_, field, {"has the id ", id, " for two tokens, the second is ", weft::detail::shown(token)});
    named_[std::size_t(id)] = true;
    parts_->bytes[std::size_t(id)] = ByteAlphabet::get().bytes(token);
  }

  void read_merges() {
    const Texts& texts = json_.merges;
    const std::size_t step = json_.merges_are_pairs ? 2 : 1;
    parts_->merges = Merges(texts.size() / step);
    std::uint32_t rank = 0;
    for (std::size_t i = 0; i < texts.size(); i += step) {
      std::string_view left = texts[i], right;
      if (json_.merges_are_pairs) {
        right = texts[i + 1];
      } else {
        if (left.starts_with("#version")) continue;  // the first line of a merges.txt
        const std::size_t space = left.find(' ');
        if (space == left.npos || left.find(' ', space + 1) != left.npos)
          refuse_tokenizer(file_, merge_name(i / step),
                           {"is ", weft::detail::shown(left), ", two tokens with a space between are meant"});
        right = left.substr(space + 1);
        left = left.substr(0, space);
      }
      const std::int32_t a = token_of(left, i / step), b = token_of(right, i / step);
      parts_->merges.set(a, b, {rank++, token_of(std::string(left) + std::string(right), i / step)});
    }
  }
  static std::string merge_name(std::size_t i) { return "model.merges[" + std::to_string(i) + "]"; }
  std::int32_t token_of(std::string_view text, std::size_t merge) const {
    const auto token = parts_->ids.find(text);
    if (token == parts_->ids.end())
      refuse_tokenizer(file_, merge_name(merge), {"names the token ", weft::detail::shown(text), ", which model.vocab lacks"});
    return token->second;
  }

  void read_normaliser(TokenizerFields fields) {
    if (fields.type({"NFC", "Sequence"}) == "NFC") {
      parts_->nfc = true;
    } else {
      for (std::size_t i = 0; i < fields.list("normalizers").size(); ++i) read_normaliser(fields.element("normalizers", i));
    }
    fields.require_all_read();
  }

  void read_pre_tokeniser(TokenizerFields fields, bool last) {
    const std::string type = fields.type({"ByteLevel", "Split", "Sequence"});
    if (last && type == "Split") fields.refuse("type", {"is Split, and the last pre-tokeniser of byte-level BPE is ByteLevel"});
    if (!last && type != "Split")
      fields.refuse("type", {"is ", type, ", and before the last pre-tokeniser only Split may stand"});
    if (type == "ByteLevel") {
      const bool gpt2 = read_byte_level_flags(fields), space = fields.flag("add_prefix_space");
      if (space) parts_->steps.emplace_back(std::nullopt);
      if (gpt2) parts_->steps.emplace_back(Pattern(Pattern::gpt2));
    } else if (type == "Split") {
      TokenizerFields pattern = fields.fields("pattern");
      const std::string regex = pattern.text("Regex");
      pattern.require_all_read();
      if (fields.text("behavior") != "Isolated") fields.unexpected("behavior", "\"Isolated\"");
      if (fields.flag("invert")) fields.unexpected("invert", "false");
      try {
        parts_->steps.emplace_back(Pattern(regex));
      } catch (const PatternError& error) {
        fields.refuse("pattern.Regex", {error.why});
      }
    } else {
      const std::size_t count = fields.list("pretokenizers").size();
      if (count == 0 || count > 8)
        fields.refuse("pretokenizers", {"are ", count, ", 1 to 8 are meant, the last of them ByteLevel"});
      for (std::size_t i = 0; i < count; ++i) read_pre_tokeniser(fields.element("pretokenizers", i), i + 1 == count);
    }
    fields.require_all_read();
  }
  static bool read_byte_level_flags(TokenizerFields& fields) {
    fields.flag("trim_offsets", true);  // offsets are not computed here
    fields.flag("add_prefix_space", true);
    return fields.flag("use_regex", true);
  }
  /// ByteLevel as a decoder or post-processor, where its flags change no id.
  static void read_byte_level(TokenizerFields fields) {
    fields.type({"ByteLevel"});
    read_byte_level_flags(fields);
    fields.require_all_read();
  }

  void read_added_token(TokenizerFields fields) {
    AddedToken token;
    token.id = fields.id("id");
    token.content = fields.text("content");
    token.single_word = fields.flag("single_word");
    token.lstrip = fields.flag("lstrip");
    token.rstrip = fields.flag("rstrip");
    token.normalized = fields.flag("normalized");
    token.special = fields.flag("special");
    fields.require_all_read();
    if (token.content.empty()) fields.refuse("content", {"is empty"});
    if (!parts_->added_ids.emplace(token.content, token.id).second)
      fields.refuse("content", {"is ", weft::detail::shown(token.content), ", which is there already"});
    // `tokenizers` assigns these ids itself, in this order, independent of the file.
    const auto known = parts_->ids.find(token.content);
    const std::int32_t expected =
        known != parts_->ids.end() ? known->second : std::int32_t(parts_->tokens.size() + next_added_++);
    if (token.id != expected) fields.refuse("id", {"is ", token.id, ", and `tokenizers` would give it ", expected});
    if (known == parts_->ids.end()) name(token.id, token.content, fields.place());
    if (token.normalized && parts_->nfc) {
      Nfc nfc;
      const std::string normal(nfc(token.content));
      token.special = token.special && normal == token.content;  // `tokenizers` searches the special tokens for the normal form
      token.content = normal;
    }
    parts_->bytes[std::size_t(token.id)] = ByteAlphabet::get().bytes(token.content);
    parts_->special[std::size_t(token.id)] = token.special;
    if (!(token.normalized ? parts_->normalised_tokens : parts_->raw_tokens).add(token))
      fields.refuse("content", {"has the same normal form as another"});
  }

  void read_post_processor(TokenizerFields fields) {
    const std::string type = fields.type({"ByteLevel", "TemplateProcessing", "Sequence"});
    if (type == "ByteLevel") {
      read_byte_level_flags(fields);
    } else if (type == "TemplateProcessing") {
      read_template(fields);
    } else {
      for (std::size_t i = 0; i < fields.list("processors").size(); ++i) read_post_processor(fields.element("processors", i));
    }
    fields.require_all_read();
  }
  void read_template(TokenizerFields& fields) {
    if (std::exchange(has_template_, true)) fields.refuse("type", {"is TemplateProcessing, which is there already"});
    fields.ignore("pair");  // only for two texts
    TokenizerFields tokens = fields.fields("special_tokens");
    bool text = false;
    for (std::size_t i = 0; i < fields.list("single").size(); ++i) {
      TokenizerFields piece = fields.element("single", i);
      if (piece.has("Sequence")) {
        TokenizerFields sequence = piece.fields("Sequence");
        if (sequence.text("id") != "A") sequence.unexpected("id", "\"A\"");
        sequence.ignore("type_id");
        sequence.require_all_read();
        if (std::exchange(text, true)) piece.refuse("Sequence", {"is the text for a second time"});
      } else {
        TokenizerFields special = piece.fields("SpecialToken");
        const std::string name = special.text("id");
        special.ignore("type_id");
        special.require_all_read();
        if (!tokens.has(name)) fields.refuse("special_tokens", {"lack ", weft::detail::shown(name)});
        TokenizerFields token = tokens.fields(name);
        for (const std::int32_t id : token.ids("ids")) {
          if (std::size_t(id) >= named_.size() || !named_[std::size_t(id)])
            token.refuse("ids", {"have ", id, ", which is no token"});
          (text ? parts_->after : parts_->before).push_back(id);
        }
        token.ignore("id");
        token.ignore("tokens");
        token.require_all_read();
      }
      piece.require_all_read();
    }
    if (!text) fields.refuse("single", {"lacks the text, a Sequence with the id A"});
  }

  std::string file_;
  TokenizerJson json_;
  std::shared_ptr<TokenizerParts> parts_ = std::make_shared<TokenizerParts>();
  std::vector<bool> named_;
  std::size_t next_added_ = 0;
  bool has_template_ = false;
};

}  // namespace weft::hugging_face::detail
