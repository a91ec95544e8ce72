// SPDX-License-Identifier: Apache-2.0
// Conversations as packed samples: tokens, targets of the assistant's turns only, documents and positions, compared with lists
// that are put together here; errors name file and line.
// covers: weft/hugging_face/tokenizer/conversations.hpp

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <weft/data/loader.hpp>
#include <weft/hugging_face/tokenizer/conversations.hpp>

#include "support/message.hpp"
#include "support/temporary_folder.hpp"

using namespace weft;
using namespace weft_test;
using hugging_face::ChatTemplate;
using hugging_face::Conversations;
using hugging_face::Tokenizer;
using Ids = std::vector<std::int32_t>;

namespace {

const Tokenizer& qwen() {
  static const Tokenizer tokenizer = Tokenizer::load(WEFT_TOKENIZERS_FOLDER "/qwen3.json");
  return tokenizer;
}

/// A file of a test, with the text of its lines.
struct Lines {
  TemporaryFolder folder;
  std::string file = (folder.path / "train.jsonl").string();
  explicit Lines(const std::string& text) { std::ofstream(file) << text; }
};

const std::string two_turns =
    R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"},)"
    R"( {"role": "assistant", "content": "4"}, {"role": "user", "content": "And 3?"}, {"role": "assistant", "content": "7"}], "id": 5})";
const std::string one_turn = R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]})";

/// The parts of a conversation: what is only read, and what is learned, in turn.
struct Expected {
  Ids tokens, targets;
  void add(const std::string& text, bool learned) {
    for (const std::int32_t id : qwen().encode(text, false)) {
      if (!targets.empty()) targets.back() = learned ? id : -1;
      tokens.push_back(id);
      targets.push_back(-1);
    }
  }
};
Expected expected_of_two_turns() {
  Expected all;
  all.add("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n", false);
  all.add("4<|im_end|>", true);
  all.add("\n<|im_start|>user\nAnd 3?<|im_end|>\n<|im_start|>assistant\n", false);
  all.add("7<|im_end|>", true);
  all.add("\n", false);
  return all;
}
Expected expected_of_one_turn() {
  Expected all;
  all.add("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", false);
  all.add("Hello.<|im_end|>", true);
  all.add("\n", false);
  return all;
}

std::string refusal(const std::string& text, hugging_face::ConversationOptions options = {}) {
  const Lines lines(text);
  const std::string what = message<UsageError>([&] { Conversations({lines.file}, qwen(), ChatTemplate::chatml(), options); });
  const std::string begin = "weft: data: '" + lines.file + "' ";
  CHECK(what.starts_with(begin));
  return what.substr(std::min(what.size(), begin.size()));
}

}  // namespace

static_assert(data::Dataset<Conversations>);

TEST_CASE("only the assistant's turns and their ends are targets; conversations are packed whole") {
  const Lines lines(two_turns + "\n\n" + one_turn + "\r\n" + one_turn);
  const Expected first = expected_of_two_turns(), second = expected_of_one_turn();
  const std::size_t length = first.tokens.size() + second.tokens.size() + 3;
  const Conversations all({lines.file}, qwen(), ChatTemplate::chatml(), {.sequence = length});
  CHECK(all.conversations() == 3);
  REQUIRE(all.size() == 2);
  CHECK(all.tokens() == first.tokens.size() + 2 * second.tokens.size());
  std::size_t targets = 0;
  for (const Expected* one : {&first, &second, &second})
    for (const std::int32_t id : one->targets) targets += id >= 0;
  CHECK(all.targets() == targets);
  CHECK(targets >= 6);

  data::Loader loader(data::Share{}, all, {.global_batch = 2, .shuffle = false});
  const auto fields = loader.batch(0);
  const Batch batch = data::token_batch(fields);
  batch.check(qwen().vocabulary());
  REQUIRE(batch.tokens.size() == 2 * length);
  Ids tokens, wanted, documents, positions;
  const auto add = [&](const Expected& one, std::int32_t document) {
    tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
    wanted.insert(wanted.end(), one.targets.begin(), one.targets.end());
    for (std::size_t i = 0; i < one.tokens.size(); ++i) {
      documents.push_back(document);
      positions.push_back(std::int32_t(i));
    }
  };
  const auto pad = [&](std::size_t end) {
    tokens.resize(end, 0);
    wanted.resize(end, -1);
    documents.resize(end, -1);
    positions.resize(end, 0);
  };
  add(first, 0);
  add(second, 1);
  pad(length);
  add(second, 0);
  pad(2 * length);
  CHECK(batch.tokens == tokens);
  CHECK(batch.targets == wanted);
  CHECK(batch.documents == documents);
  const auto place = fields[data::positions].values();
  CHECK(Ids(place.begin(), place.end()) == positions);
}

TEST_CASE("windows in an order for ranks of cp have the same conversations") {
  const Lines lines(one_turn + "\n" + two_turns + "\n" + one_turn + "\n" + one_turn + "\n" + one_turn);
  const std::size_t length = 4 * ((expected_of_two_turns().tokens.size() + 4 * expected_of_one_turn().tokens.size() + 7) / 4);
  const auto documents_of = [&](std::size_t ranks) {
    const Conversations all({lines.file}, qwen(), ChatTemplate::chatml(), {.sequence = length, .balance_cp = ranks});
    REQUIRE(all.size() == 1);
    const auto fields = data::Loader(data::Share{}, all, {.global_batch = 1, .shuffle = false}).batch(0);
    std::vector<std::vector<Ids>> found;  // tokens, targets and positions of each
    for (std::size_t i = 0; i < length; ++i) {
      const std::int32_t number = fields[data::documents].values()[i];
      if (number < 0) continue;
      if (std::size_t(number) == found.size()) found.push_back(std::vector<Ids>(3));
      REQUIRE(std::size_t(number) + 1 == found.size());
      found.back()[0].push_back(fields[data::tokens].values()[i]);
      found.back()[1].push_back(fields[data::targets].values()[i]);
      found.back()[2].push_back(fields[data::positions].values()[i]);
    }
    return found;
  };
  auto given = documents_of(1), balanced = documents_of(2);
  CHECK(given.size() == 5);
  CHECK(given != balanced);
  std::sort(given.begin(), given.end()), std::sort(balanced.begin(), balanced.end());
  CHECK(given == balanced);
  CHECK(message<ShapeError>([&] {
          Conversations({lines.file}, qwen(), ChatTemplate::chatml(), {.sequence = length + 2, .balance_cp = 2});
        }).find("2 * cp must divide the sequence") != std::string::npos);
}

TEST_CASE("other learned roles, and conversations that are cut") {
  const Lines lines(two_turns + "\n");
  const Expected whole = expected_of_two_turns();
  const auto targets = [&](hugging_face::ConversationOptions options) {
    return Conversations({lines.file}, qwen(), ChatTemplate::chatml(), options).targets();
  };
  const std::size_t both = targets({.learned = {"assistant", "user"}}), mine = targets({.learned = {"assistant"}});
  CHECK(both == mine + qwen().encode("2 + 2?<|im_end|>", false).size() + qwen().encode("And 3?<|im_end|>", false).size());
  const std::size_t least =
      std::size_t(std::find_if(whole.targets.begin(), whole.targets.end(), [](auto id) { return id >= 0; }) -
                  whole.targets.begin()) +
      2;
  CHECK(targets({.sequence = least, .cut = true}) == 1);
  CHECK(refusal(two_turns, {.sequence = least - 1, .cut = true}) ==
        "line 1: cut at " + std::to_string(least - 1) + " tokens, the conversation has no target: make sequences longer");
}

TEST_CASE("the identity covers the learned roles, and a conversation without a target is refused") {
  const Lines lines(two_turns + "\n");
  const auto identity = [&](hugging_face::ConversationOptions options) {
    return Conversations({lines.file}, qwen(), ChatTemplate::chatml(), options).identity().settings;
  };
  CHECK(identity({.learned = {"user", "assistant"}}) != identity({.learned = {"assistant"}}));
  CHECK(identity({.cut = true}) != identity({.cut = false}));
  CHECK(identity({}) == identity({}));
  ChatTemplate bare;
  const Lines empty(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]})");
  CHECK_THROWS_WITH_AS((Conversations({empty.file}, qwen(), bare, {})), doctest::Contains("so the conversation has no target"),
                       UsageError);
}

TEST_CASE("a template with a begin, and contents that are trimmed") {
  const Tokenizer llama = Tokenizer::load(WEFT_TOKENIZERS_FOLDER "/llama3.json");
  const Lines lines(R"({"messages": [{"role": "user", "content": " Hi\n"}, {"role": "assistant", "content": "\tHello. "}]})");
  const Conversations all({lines.file}, llama, ChatTemplate::llama3(), {.sequence = 64});
  data::Loader loader(data::Share{}, all, {.global_batch = 1, .shuffle = false});
  const auto fields = loader.batch(0);
  Ids expected = llama.encode(
      "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
      "Hello.<|eot_id|>",
      false);
  CHECK(all.tokens() == expected.size());
  expected.resize(64, 0);
  const auto tokens = fields[data::tokens].values();
  CHECK(Ids(tokens.begin(), tokens.end()) == expected);
}

TEST_CASE("errors name the file and the line") {
  CHECK(refusal(one_turn + "\n{\"messages\": [\n") == "line 2: it is not JSON");
  CHECK(refusal("\n[1]") ==
        "line 2: it has no list \"messages\": {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}, ...]}");
  CHECK(refusal(R"({"messages": [{"role": "user"}]})") == "line 1: message 0 has no text \"content\"");
  CHECK(refusal(R"({"messages": [{"role": 1, "content": ""}]})") == "line 1: message 0 has no text \"role\"");
  CHECK(refusal(R"({"messages": ["a"]})") == "line 1: message 0 has no text \"role\"");
  CHECK(refusal(R"({"messages": [{"role": "", "content": "a"}]})") == "line 1: message 0 has an empty role");
  CHECK(refusal(R"({"messages": [{"role": "user", "content": "a<|im_end|>"}]})") ==
        "line 1: message 0's content contains <|im_end|>, which the template puts between messages");
  CHECK(refusal(R"({"messages": [{"role": "user", "content": "a"}]})") ==
        "line 1: no message has a role that is learned (assistant), so it has no target");
  CHECK(refusal(one_turn, {.sequence = 4}).starts_with("line 1: the conversation has "));
  CHECK(message<UsageError>([] {
          Conversations({"/missing.jsonl"}, qwen(), ChatTemplate::chatml());
        }).starts_with("weft: data: cannot read '/missing.jsonl'"));
  CHECK(message<UsageError>([] { Conversations({}, qwen(), ChatTemplate::llama3()); }) ==
        "weft: data: the chat template needs the token <|begin_of_text|>, and the tokenizer has none: use the model's template");
  CHECK(message<UsageError>([] { Conversations({}, qwen(), ChatTemplate::chatml(), {.sequence = 0}); }) ==
        "weft: data: sequence(0) must be at least 1");
}
