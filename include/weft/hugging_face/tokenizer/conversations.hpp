// SPDX-License-Identifier: Apache-2.0
#pragma once
// Conversations for supervised fine-tuning: lines of JSON with messages of a role and a content, as tokens with a loss only on
// the assistant's turns. Whole conversations are packed into windows; attention and positions begin anew with each of them.
//
//   {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}
//
//   const auto tokenizer = hugging_face::Tokenizer::load("qwen3");
//   hugging_face::Conversations train({"train.jsonl"}, tokenizer, hugging_face::ChatTemplate::chatml(), {.sequence = 1024});
//   for (auto&& batch : data::Loader(mesh, train, {.global_batch = 16})) model.train_step(data::token_batch(batch));

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/core/data_identity.hpp>
#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/data/document_order.hpp>
#include <weft/data/file_bytes.hpp>
#include <weft/data/token_windows.hpp>
#include <weft/hugging_face/tokenizer.hpp>

namespace weft::hugging_face {

/// The text around messages: `begin`, then for each message `before_role` role `after_role` content `end` `after`. Each message
/// is encoded in three pieces, as in generation: the prompt of a turn before its content, the content with `end`, and `after`.
struct ChatTemplate {
  std::string begin = {}, before_role = {}, after_role = {};
  std::string end = {};                   ///< ends a turn; the assistant learns to write it
  std::string after = {};                 ///< behind `end`; nobody learns it
  bool trims = false;                     ///< whitespace around a content is removed
  std::vector<std::string> special = {};  ///< tokens that the tokenizer must have, and contents must not

  /// "<|im_start|>user\n...<|im_end|>\n": Qwen and many others.
  static ChatTemplate chatml() {
    return {.before_role = "<|im_start|>",
            .after_role = "\n",
            .end = "<|im_end|>",
            .after = "\n",
            .special = {"<|im_start|>", "<|im_end|>"}};
  }
  /// "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n...<|eot_id|>": Llama 3, without its default system message.
  static ChatTemplate llama3() {
    return {.begin = "<|begin_of_text|>",
            .before_role = "<|start_header_id|>",
            .after_role = "<|end_header_id|>\n\n",
            .end = "<|eot_id|>",
            .trims = true,
            .special = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}};
  }
};

/// Options of Conversations.
struct ConversationOptions {
  std::size_t sequence = 1024;                       ///< tokens per sample
  std::vector<std::string> learned = {"assistant"};  ///< roles whose contents, and the `end` behind them, are targets
  bool cut = false;                                  ///< true: a longer conversation loses its end; false: it is refused
  std::size_t balance_cp = 1;  ///< orders each window for this number of cp ranks, as in data::PackingOptions
};

namespace detail {

/// The tokens of conversations one after the other, and of each whether a model learns to write it.
struct EncodedConversations {
  std::vector<std::int32_t> tokens;
  std::vector<char> learned;
  std::vector<std::size_t> ends;  ///< of each conversation in `tokens`
};

/// Throws UsageError: "data: FILE line N: why".
[[noreturn]] WEFT_COLD inline void refuse_line(const std::string& file, std::size_t line, weft::detail::Words why) {
  std::string text = weft::detail::joined({"data: '", file, "' line ", line, ": "});
  weft::detail::append_to(text, why);
  throw UsageError(text);
}

/// Reads files of conversations, a line at a time.
class ConversationReader {
 public:
  ConversationReader(const Tokenizer& tokenizer, const ChatTemplate& chat, const ConversationOptions& options)
      : tokenizer_(tokenizer), chat_(chat), options_(options) {
    for (const std::string& token : chat.special)
      if (!tokenizer.id(token))
        throw_error<UsageError>({"data: the chat template needs the token ", weft::detail::shown(token),
                                 ", and the tokenizer has none: use the model's template"});
    if (options.sequence == 0) throw_error<UsageError>({"data: sequence(0) must be at least 1"});
    if (options.learned.empty()) throw_error<UsageError>({"data: no role is learned, so no conversation has a target"});
    before_all_ = tokenizer.encode(chat.begin, false);
    after_ = tokenizer.encode(chat.after, false);
  }

  void read(const std::string& file, std::string_view text) {
    file_ = &file;
    line_ = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      ++line_;
      const std::string_view line = text.substr(at, end - at);
      if (line.find_first_not_of(" \t\r") != line.npos) conversation(line);
      at = end + 1;
    }
  }
  EncodedConversations take() { return std::move(out_); }

 private:
  [[noreturn]] void refuse(weft::detail::Words why) const { refuse_line(*file_, line_, why); }

  void conversation(std::string_view line) {
    if (const std::size_t at = line.find('\0'); at != line.npos) refuse({"it is not JSON: byte ", at, " is 0"});
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded()) refuse({"it is not JSON"});
    const auto messages = json.is_object() ? json.find("messages") : json.end();
    if (!json.is_object() || messages == json.end() || !messages->is_array() || messages->empty())
      refuse({"it has no list \"messages\": {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}, ...]}"});
    const std::size_t first = out_.tokens.size();
    bool learns = false;
    add(before_all_, false);
    for (std::size_t i = 0; i < messages->size(); ++i) learns = message((*messages)[i], i) || learns;
    if (!learns) refuse({"no message has a role that is learned (", roles(), "), so it has no target"});
    const std::size_t length = out_.tokens.size() - first;
    if (length > options_.sequence) {
      if (!options_.cut)
        refuse({"the conversation has ", length, " tokens, and a sequence ", options_.sequence,
                ": make sequences longer (--sequence), or cut conversations (ConversationOptions::cut, --cut)"});
      out_.tokens.resize(first + options_.sequence);
      out_.learned.resize(first + options_.sequence);
    }
    if (!out_.learned.empty()) out_.learned[first] = 0;  // no token precedes it, which would have it as its target
    if (std::find(out_.learned.begin() + std::ptrdiff_t(first), out_.learned.end(), char(1)) == out_.learned.end()) {
      if (length > options_.sequence)
        refuse({"cut at ", options_.sequence, " tokens, the conversation has no target: make sequences longer"});
      refuse({"the messages that are learned (", roles(), ") have no tokens, so the conversation has no target"});
    }
    out_.ends.push_back(out_.tokens.size());
  }

  /// Returns true if the message is learned.
  bool message(const nlohmann::json& json, std::size_t index) {
    const auto text_of = [&](const char* key) -> std::string_view {
      const auto found = json.is_object() ? json.find(key) : json.end();
      if (!json.is_object() || found == json.end() || !found->is_string())
        refuse({"message ", index, " has no text \"", key, "\""});
      const std::string_view text = found->get_ref<const std::string&>();
      for (const std::string& token : chat_.special)
        if (text.find(token) != text.npos)
          refuse({"message ", index, "'s ", key, " contains ", weft::detail::shown(token),
                  ", which the template puts between messages"});
      return text;
    };
    const std::string_view role = text_of("role");
    if (role.empty()) refuse({"message ", index, " has an empty role"});
    std::string_view content = text_of("content");
    if (chat_.trims) content = trimmed(content);
    const bool learned = std::find(options_.learned.begin(), options_.learned.end(), role) != options_.learned.end();
    add(tokenizer_.encode(weft::detail::joined({chat_.before_role, role, chat_.after_role}), false), false);
    add(tokenizer_.encode(weft::detail::joined({content, chat_.end}), false), learned);
    add(after_, false);
    return learned;
  }
  static std::string_view trimmed(std::string_view text) {
    constexpr std::string_view spaces = " \t\n\r\v\f";
    const std::size_t first = text.find_first_not_of(spaces);
    return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(spaces) + 1 - first);
  }
  void add(std::span<const std::int32_t> tokens, bool learned) {
    out_.tokens.insert(out_.tokens.end(), tokens.begin(), tokens.end());
    out_.learned.insert(out_.learned.end(), tokens.size(), char(learned));
  }
  std::string roles() const {
    std::string text;
    for (const std::string& role : options_.learned) weft::detail::append_to(text, {text.empty() ? "" : ", ", role});
    return text;
  }

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_;
  const ConversationOptions& options_;
  std::vector<std::int32_t> before_all_, after_;
  EncodedConversations out_;
  const std::string* file_ = nullptr;
  std::size_t line_ = 0;
};

}  // namespace detail

/// A dataset of packed conversations, in the order of the files. A window holds whole conversations; the next one that does not
/// fit begins the next window, after padding. The target of a token is the next one if that is learned, else -1, and the last
/// token of a conversation has none. All tokens are in memory.
class Conversations {
 public:
  using Fields = data::PackedDocuments::Fields;

  /// Throws UsageError for a file that cannot be read; for a line that is no conversation, has no learned role, contains a
  /// special token of the template, or is longer than `sequence`, with file and line; and if the tokenizer lacks a token of the
  /// template. Throws ShapeError unless balance_cp divides a window into two chunks for each rank.
  Conversations(const std::vector<std::string>& files, const Tokenizer& tokenizer, const ChatTemplate& chat,
                const ConversationOptions& options = {})
      : sequence_(options.sequence), balance_cp_(options.balance_cp) {
    if (balance_cp_ > 1) data::attention_pairs({}, sequence_, balance_cp_);  // throws for a window that is not whole chunks
    detail::ConversationReader reader(tokenizer, chat, options);
    for (const std::string& file : files) {
      const auto bytes = data::detail::FileBytes::open(file);
      reader.read(file, {reinterpret_cast<const char*>(bytes->bytes().data()), bytes->bytes().size()});
      identity_.add(DataIdentity(file, bytes->bytes().data(), bytes->bytes().size()));
    }
    all_ = reader.take();
    if (all_.ends.empty()) throw_error<UsageError>({"data: no conversation in ", files.size(), " files"});
    identity_.set("sequence", double(sequence_));
    identity_.set("template",
                  weft::detail::joined({chat.begin, chat.before_role, "ROLE", chat.after_role, chat.end, chat.after}));
    std::string learned;
    for (const std::string& role : options.learned) weft::detail::append_to(learned, {learned.empty() ? "" : ", ", role});
    identity_.set("learned", learned);
    identity_.set("cut", options.cut ? 1.0 : 0.0);
    const DataIdentity tokens("", all_.tokens.data(), all_.tokens.size() * sizeof(std::int32_t));
    identity_.set("tokens", tokens.digest_text());  // another tokenizer makes others
    pack();
  }

  /// Windows.
  std::size_t size() const { return windows_.size() - 1; }
  std::size_t conversations() const { return all_.ends.size(); }
  /// Tokens of all conversations, and those that are targets.
  std::size_t tokens() const { return all_.tokens.size(); }
  std::size_t targets() const { return std::size_t(std::count(all_.learned.begin(), all_.learned.end(), char(1))); }
  void shapes(Fields::Shapes& shapes) const {
    shapes[data::tokens] = shapes[data::targets] = shapes[data::documents] = shapes[data::positions] = {sequence_};
  }
  void load(std::size_t index, const Fields::Sample& sample) const {
    std::size_t at = 0;
    const std::vector<std::size_t> order = order_of(index);
    for (std::size_t number = 0; number < order.size(); ++number) {
      const std::size_t of = windows_[index] + order[number], first = first_of(of), end = all_.ends[of];
      for (std::size_t i = first; i < end; ++i, ++at) {
        sample[data::tokens][at] = all_.tokens[i];
        sample[data::targets][at] = i + 1 < end && all_.learned[i + 1] != 0 ? all_.tokens[i + 1] : -1;
        sample[data::documents][at] = std::int32_t(number);
        sample[data::positions][at] = std::int32_t(i - first);
      }
    }
    for (; at < sequence_; ++at) {
      sample[data::tokens][at] = sample[data::positions][at] = 0;
      sample[data::targets][at] = sample[data::documents][at] = -1;
    }
  }
  /// The identity for SaveOptions::data and LoadOptions::data of checkpoints.
  DataIdentity identity() const { return identity_; }

 private:
  std::size_t first_of(std::size_t conversation) const { return conversation == 0 ? 0 : all_.ends[conversation - 1]; }
  std::vector<std::size_t> order_of(std::size_t window) const {
    std::vector<std::size_t> lengths;
    for (std::size_t of = windows_[window]; of < windows_[window + 1]; ++of) lengths.push_back(all_.ends[of] - first_of(of));
    if (balance_cp_ > 1) return data::balanced_order(lengths, sequence_, balance_cp_);
    std::iota(lengths.begin(), lengths.end(), std::size_t(0));
    return lengths;
  }
  void pack() {
    windows_ = {0};
    for (std::size_t of = 0; of < all_.ends.size(); ++of)
      if (all_.ends[of] - first_of(windows_.back()) > sequence_) windows_.push_back(of);
    windows_.push_back(all_.ends.size());
  }

  std::size_t sequence_, balance_cp_;
  detail::EncodedConversations all_;
  std::vector<std::size_t> windows_;  // the first conversation of each window, and their number
  DataIdentity identity_;
};

}  // namespace weft::hugging_face
