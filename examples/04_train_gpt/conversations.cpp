// SPDX-License-Identifier: Apache-2.0
// Conversations of the trainer, and the tokenizer that reads them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#if __has_include(<pcre2.h>) && __has_include(<utf8proc.h>) && __has_include(<nlohmann/json.hpp>)
#include <weft/hugging_face/tokenizer/conversations.hpp>
#define TRAIN_GPT_CONVERSATIONS
#endif

#include "data.hpp"
#include "options.hpp"

namespace train_gpt {

#ifdef TRAIN_GPT_CONVERSATIONS

namespace {

using weft::hugging_face::ChatTemplate;
using weft::hugging_face::Conversations;
using weft::hugging_face::Tokenizer;

/// The template of --chat; for auto, the one whose special tokens the tokenizer has.
ChatTemplate template_of(const Options& o, const Tokenizer& tokenizer) {
  const std::pair<const char*, ChatTemplate> all[] = {{"chatml", ChatTemplate::chatml()}, {"llama3", ChatTemplate::llama3()}};
  for (const auto& [name, chat] : all) {
    const auto known = [&](const std::string& token) { return tokenizer.id(token).has_value(); };
    if (o.chat == name || (o.chat == "auto" && std::all_of(chat.special.begin(), chat.special.end(), known))) return chat;
  }
  throw weft::UsageError(o.program + ": --tokenizer " + o.tokenizer +
                         " has the special tokens of neither chatml nor llama3: use a model's own tokenizer");
}

/// Windows `first` to `first + count` of conversations.
std::shared_ptr<const PackedSamples> part_of(std::shared_ptr<const Conversations> all, std::size_t sequence, std::size_t files,
                                             std::size_t first, std::size_t count) {
  const std::size_t tokens = count * all->tokens() / all->size();  // about as many in each window
  return std::make_shared<const PackedSamples>(
      PackedSamples{count, sequence, files, tokens,
                    [all = std::move(all), first](std::size_t index, const auto& sample) { all->load(first + index, sample); }});
}

}  // namespace

std::int64_t vocabulary_of_tokenizer(const Options& o) { return std::int64_t(Tokenizer::load(o.tokenizer).vocabulary()); }
std::vector<std::int32_t> encoded(const Options& o, const std::string& text) {
  return Tokenizer::load(o.tokenizer).encode(text, false);
}
std::string decoded(const Options& o, const std::vector<std::int32_t>& tokens) {
  return Tokenizer::load(o.tokenizer).decode(tokens, false);
}

Data read_conversations(Options& o) {
  const Tokenizer tokenizer = Tokenizer::load(o.tokenizer);
  if (tokenizer.vocabulary() > o.vocabulary_size())
    throw weft::UsageError(o.program + ": --vocabulary " + std::to_string(*o.vocabulary) + " is below the " +
                           std::to_string(tokenizer.vocabulary()) + " tokens of " + o.tokenizer);
  const ChatTemplate chat = template_of(o, tokenizer);
  const auto read = [&](const std::vector<std::string>& files) {
    return std::make_shared<const Conversations>(
        files, tokenizer, chat,
        weft::hugging_face::ConversationOptions{
            .sequence = std::size_t(o.sequence), .learned = o.learned, .cut = o.cut, .balance_cp = std::size_t(o.balance_cp)});
  };
  const auto sequence = std::size_t(o.sequence);
  const std::shared_ptr<const Conversations> all = read(o.data);
  const auto kept = std::size_t(std::floor(double(all->size()) * o.validation_fraction));
  if (o.validation_fraction > 0 && kept == 0)
    throw weft::UsageError(o.program + ": --validation-fraction " + std::to_string(o.validation_fraction) + " of " +
                           std::to_string(all->size()) +
                           " sequences is none: give files with --validation, or --validation-fraction 0");
  Data data;
  data.conversations = part_of(all, sequence, o.data.size(), 0, all->size() - kept);
  if (kept > 0) {
    const auto ends = part_of(all, sequence, 0, all->size() - kept, kept);
    data.validation.push_back(set_of("", ends, ends->tokens));
  }
  for (const std::string& file : o.validation) {
    const std::shared_ptr<const Conversations> set = read({file});
    data.validation.push_back(set_of(file, set, set->tokens()));
    o.validation_identity.add(set->identity());
  }
  o.data_identity = all->identity();
  o.data_identity->set("validation-fraction", o.validation_fraction);
  return data;
}

#else

namespace {

[[noreturn]] void refuse(const Options& o) {
  throw weft::UsageError(o.program +
                         ": conversations: this program was built without PCRE2 or utf8proc (Debian: libpcre2-dev "
                         "libutf8proc-dev)");
}

}  // namespace

std::int64_t vocabulary_of_tokenizer(const Options& o) { refuse(o); }
std::vector<std::int32_t> encoded(const Options& o, const std::string&) { refuse(o); }
std::string decoded(const Options& o, const std::vector<std::int32_t>&) { refuse(o); }
Data read_conversations(Options& o) { refuse(o); }

#endif

}  // namespace train_gpt
