// SPDX-License-Identifier: Apache-2.0
// covers: weft/hugging_face/tokenizer/added_tokens.hpp weft/hugging_face/tokenizer/byte_alphabet.hpp
// covers: weft/hugging_face/tokenizer/byte_pair_encoding.hpp weft/hugging_face/tokenizer/error.hpp
// covers: weft/hugging_face/tokenizer/json.hpp weft/hugging_face/tokenizer/nfc.hpp weft/hugging_face/tokenizer/parts.hpp
// covers: weft/hugging_face/tokenizer/pattern.hpp weft/hugging_face/tokenizer/read.hpp weft/hugging_face/tokenizer/unicode.hpp
// covers: weft/hugging_face/tokenizer/utf8.hpp
// Tokenizers compared with ids of the package `tokenizers`, for small files that it wrote (test_tokenizers.py --write), and
// errors.
#include <doctest/doctest.h>

#include <unistd.h>
#include <utf8proc.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/hugging_face/tokenizer.hpp>
#include <weft/hugging_face/tokenizer/added_tokens.hpp>
#include <weft/hugging_face/tokenizer/byte_alphabet.hpp>
#include <weft/hugging_face/tokenizer/byte_pair_encoding.hpp>
#include <weft/hugging_face/tokenizer/error.hpp>
#include <weft/hugging_face/tokenizer/json.hpp>
#include <weft/hugging_face/tokenizer/nfc.hpp>
#include <weft/hugging_face/tokenizer/parts.hpp>
#include <weft/hugging_face/tokenizer/pattern.hpp>
#include <weft/hugging_face/tokenizer/read.hpp>
#include <weft/hugging_face/tokenizer/unicode.hpp>
#include <weft/hugging_face/tokenizer/utf8.hpp>

using nlohmann::json;
using namespace weft;
using hugging_face::Tokenizer;
using hugging_face::TokenizerError;

namespace {

std::string path_of(const std::string& name) { return WEFT_TOKENIZERS_FOLDER "/" + name + ".json"; }
std::string contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>(in), {}};
}
json file_of(const std::string& name) { return json::parse(contents(path_of(name))); }

/// The message of the error, after a check of the field; empty if there was none.
std::string refusal(const std::string& text, const std::string& field) {
  try {
    Tokenizer::parse(text, "some.json");
  } catch (const TokenizerError& error) {
    CHECK(error.field() == field);
    CHECK(error.file() == "some.json");
    CHECK(error.exit_code() == 2);
    const std::string what = error.what();
    CHECK(what.starts_with("weft: tokenizer: some.json: " + field));
    CHECK(what.find('\n') == what.npos);
    return what;
  }
  return "";
}
/// `refusal` of a file with one value set.
std::string with(const std::string& name, const std::string& pointer, const json& value, const std::string& field) {
  json file = file_of(name);
  file[json::json_pointer(pointer)] = value;
  return refusal(file.dump(), field);
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("ids and texts are those of the package") {
  for (const std::string name : {"gpt2", "llama3", "qwen3", "qwen35", "o200k", "flags"}) {
    const Tokenizer tokenizer = Tokenizer::load(path_of(name));
    const json golden = json::parse(contents(path_of(name + "_ids")));
    CHECK(golden.size() >= 15);
    for (const json& one : golden) {
      CAPTURE(name);
      CAPTURE(one.dump());
      const auto text = one.at("text").get<std::string>();
      const std::vector<std::int32_t> ids = tokenizer.encode(text);
      CHECK(ids == one.at("ids").get<std::vector<std::int32_t>>());
      CHECK(tokenizer.encode(text, false) == one.at("plain").get<std::vector<std::int32_t>>());
      CHECK(tokenizer.decode(ids, false) == one.at("whole").get<std::string>());
      CHECK(tokenizer.decode(ids) == one.at("short").get<std::string>());
    }
  }
}

TEST_CASE("a template is put around a text on request") {
  const Tokenizer tokenizer = Tokenizer::load(path_of("llama3"));
  const std::int32_t begin = tokenizer.id("<|begin_of_text|>").value();
  CHECK(tokenizer.encode("") == std::vector<std::int32_t>{begin});
  CHECK(tokenizer.encode("", false).empty());
  CHECK(tokenizer.vocabulary() == std::size_t(tokenizer.id("<|reserved_special_token_0|>").value()) + 1);
  CHECK_FALSE(tokenizer.id("<|im_start|>").has_value());
  json file = file_of("llama3");  // and behind it
  auto& single = file["post_processor"]["processors"][1]["single"];
  single.push_back(single[0]);
  CHECK(Tokenizer::parse(file.dump()).encode("") == std::vector<std::int32_t>{begin, begin});
}

TEST_CASE("ids one by one give whole characters") {
  const Tokenizer tokenizer = Tokenizer::load(path_of("gpt2"));
  const std::string text = "a\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80z";
  std::vector<std::int32_t> bytes;  // a token for each byte
  for (const char byte : text)
    bytes.push_back(tokenizer.id(hugging_face::detail::ByteAlphabet::get().character(static_cast<unsigned char>(byte))).value());
  CHECK(tokenizer.decode(bytes) == text);
  auto stream = tokenizer.stream();
  std::vector<std::string> pieces;
  for (const std::int32_t id : bytes) pieces.push_back(stream.next(id));
  CHECK(pieces == std::vector<std::string>{"a", "", "\xc3\xa9", "", "", "\xe4\xbd\xa0", "", "", "", "\xf0\x9f\x98\x80", "z"});
  CHECK(stream.finish().empty());
  // A character interrupted by another one, and one interrupted by the end.
  CHECK(stream.next(bytes[3]).empty());
  CHECK(stream.next(bytes[0]) ==
        "\xef\xbf\xbd"
        "a");
  CHECK(stream.next(bytes[6]).empty());
  CHECK(stream.next(bytes[7]).empty());
  CHECK(stream.finish() == "\xef\xbf\xbd");
  CHECK(stream.finish().empty());
  // A model's embedding may have rows without a token.
  CHECK(stream.next(1'000'000).empty());
  CHECK(tokenizer.decode(std::vector<std::int32_t>{-1, bytes[0], 1 << 30}) == "a");
}

TEST_CASE("the normal form C is utf8proc's, and marks in a row cost no more than their number") {
  hugging_face::detail::Nfc nfc;
  std::mt19937 random(3);
  // Letters, marks of six classes, letters with marks, a mark of its own decomposition, Hangul, a letter of four decomposed.
  const char32_t all[] = {U'a',   U'o',   0x1ea5, 0x1e69, 0x212b, 0x0344, 0x0301, 0x0323, 0x0345, 0x0327,
                          0x05b0, 0x3099, 0x304b, 0x1100, 0x1161, 0x11a8, 0xac00, 0x1f82, 0x0f73, 0x1d15e};
  for (int turn = 0; turn < 2000; ++turn) {
    std::string text;
    for (std::size_t left = random() % 24; left > 0; --left) {
      utf8proc_uint8_t bytes[4];
      text.append(reinterpret_cast<char*>(bytes),
                  std::size_t(utf8proc_encode_char(utf8proc_int32_t(all[random() % std::size(all)]), bytes)));
    }
    utf8proc_uint8_t* const expected = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    CHECK(nfc(text) == reinterpret_cast<const char*>(expected));
    std::free(expected);
  }
  std::string marks = "a";
  for (int i = 0; i < 500'000; ++i) marks += "\u0301\u0323";  // with a square, hours
  CHECK(nfc(marks).substr(0, 7) == "\u1ea1\u0323\u0323");
}

TEST_CASE("bytes that are no character become as few U+FFFD as in tokenizers") {
  const auto lossy = [](std::string_view bytes) {
    std::string text, pending;
    hugging_face::detail::append_characters(text, pending, bytes, false);
    CHECK(pending.empty());
    return text;
  };
  const std::string bad = "\xef\xbf\xbd";
  CHECK(lossy("\xe4\xbdx") == bad + "x");
  CHECK(lossy("\xf0\x9f\x98") == bad);
  CHECK(lossy("\xc0\x80") == bad + bad);                      // overlong
  CHECK(lossy("\xed\xa0\x80") == bad + bad + bad);            // a surrogate
  CHECK(lossy("\xf4\x90\x80\x80") == bad + bad + bad + bad);  // past the last code point
  CHECK(lossy("\xff\x80") == bad + bad);
}

TEST_CASE("a text that is not UTF-8 is refused") {
  const Tokenizer tokenizer = Tokenizer::load(path_of("qwen3"));
  for (const std::string end : {"\xe4\xbd", "\xed\xa0\x80", "\xc0\x80", "\xff", "\xf4\x90\x80\x80"})
    CHECK_THROWS_WITH_AS(tokenizer.encode("eleven byte" + end),
                         "weft: tokenizer: the text is not UTF-8: byte 11 begins no character", UsageError);
}

TEST_CASE("threads encode with one tokenizer") {
  const Tokenizer tokenizer = Tokenizer::load(path_of("qwen3"));
  std::string text;
  for (const json& one : json::parse(contents(path_of("qwen3_ids")))) text += one.at("text").get<std::string>();
  const std::vector<std::int32_t> expected = tokenizer.encode(text);
  std::vector<int> same(4);
  std::vector<std::thread> threads;
  for (int& is : same)
    threads.emplace_back([&, copy = tokenizer] {
      is = 1;
      for (int round = 0; round < 50; ++round) is = is == 1 && copy.encode(text) == expected;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(same == std::vector<int>(4, 1));
}

TEST_CASE("a long word and long white space end") {
  const Tokenizer tokenizer = Tokenizer::load(path_of("llama3"));
  for (const std::string part : {"ab", " ", "\n", "\xe4\xbd\xa0", "!", "1", " \n"}) {
    std::string text;
    while (text.size() < 300'000) text += part;
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  }
}

TEST_CASE("unsupported parts are refused by name") {
  CHECK(has(with("gpt2", "/new_field", 1, "new_field"), "is not supported by this version of weft"));
  CHECK(has(with("gpt2", "/version", "2.0", "version"), "\"1.0\" is meant"));
  CHECK(has(with("gpt2", "/truncation", {{"max_length", 3}}, "truncation"), "this weft has no truncation"));
  CHECK(has(with("gpt2", "/padding", {{"length", 3}}, "padding"), "this weft has no padding"));
  CHECK(has(with("qwen3", "/model/type", "Unigram", "model.type"), "is \"Unigram\", and this version of weft reads BPE"));
  CHECK(has(with("qwen3", "/model/dropout", 0.1, "model.dropout"), "by chance"));
  CHECK(has(with("qwen3", "/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"), "has none"));
  CHECK(has(with("qwen3", "/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix"), "has none"));
  CHECK(has(with("qwen3", "/model/colour", "red", "model.colour"), "is not supported"));
  CHECK(has(with("qwen3", "/normalizer/type", "NFKC", "normalizer.type"),
            "is \"NFKC\", and this version of weft reads NFC, Sequence"));
  CHECK(has(with("qwen3", "/pre_tokenizer", nullptr, "pre_tokenizer"), "is not there"));
  CHECK(has(with("qwen3", "/pre_tokenizer/pretokenizers/0/type", "Digits", "pre_tokenizer.pretokenizers[0].type"), "Digits"));
  CHECK(has(with("qwen3", "/pre_tokenizer/pretokenizers/0/behavior", "Removed", "pre_tokenizer.pretokenizers[0].behavior"),
            "Isolated"));
  CHECK(has(with("qwen3", "/pre_tokenizer/pretokenizers/0/invert", true, "pre_tokenizer.pretokenizers[0].invert"), "false"));
  CHECK(has(
      with("qwen3", "/pre_tokenizer/pretokenizers/0/pattern", {{"String", " "}}, "pre_tokenizer.pretokenizers[0].pattern.Regex"),
      "not there"));
  CHECK(
      has(with("qwen3", "/pre_tokenizer/pretokenizers/1/type", "Metaspace", "pre_tokenizer.pretokenizers[1].type"), "Metaspace"));
  CHECK(has(with("llama3", "/post_processor/processors/1/type", "BertProcessing", "post_processor.processors[1].type"),
            "TemplateProcessing"));
  CHECK(has(with("llama3", "/post_processor/processors/1/single/0/SpecialToken/id", "<s>",
                 "post_processor.processors[1].special_tokens"),
            "lack <s>"));
  CHECK(has(with("llama3", "/post_processor/processors/1/single/1/Sequence/id", "B",
                 "post_processor.processors[1].single[1].Sequence.id"),
            "\"A\" is meant"));
  CHECK(has(with("llama3", "/post_processor/processors/1/special_tokens/<|begin_of_text|>/ids", {9999},
                 "post_processor.processors[1].special_tokens.<|begin_of_text|>.ids"),
            "no token"));
  CHECK(has(with("qwen3", "/decoder/type", "ByteFallback", "decoder.type"), "ByteLevel"));
  CHECK(has(with("qwen3", "/decoder", nullptr, "decoder"), "is not there"));
  CHECK(has(with("qwen3", "/added_tokens/0/id", 3, "added_tokens[0].id"), "`tokenizers` would give it"));
  CHECK(has(with("qwen3", "/added_tokens/1/content", "<|endoftext|>", "added_tokens[1].content"), "there already"));
  CHECK(has(with("qwen3", "/added_tokens/1/content", "", "added_tokens[1].content"), "is empty"));
  CHECK(has(with("qwen3", "/added_tokens/1/rstrip", 1, "added_tokens[1].rstrip"), "true or false is meant"));
  CHECK(has(with("qwen3", "/added_tokens/1/loud", true, "added_tokens[1].loud"), "is not supported"));
  CHECK(with("qwen3", "/model/unk_token", "<|endoftext|>", "") == "");  // no byte is unknown
}

TEST_CASE("vocabulary and merges that contradict themselves are refused") {
  CHECK(has(with("qwen3", "/model/vocab/a", "x", "model.vocab"), "something else than an id"));
  CHECK(has(with("qwen3", "/model/vocab/a", -1, "model.vocab"), "something else than an id"));
  CHECK(has(with("qwen3", "/model/vocab/a", 1 << 22, "model.vocab"), "has the id 4194304"));
  CHECK(has(with("qwen3", "/model/vocab/a", 1 << 21, "model.vocab"),
            "has the id 2097152, and with 330 tokens weft takes those below 66856"));
  CHECK(has(with("qwen3", "/model/vocab/a", 7, "model.vocab"), "for two tokens"));
  CHECK(has(with("qwen3", "/model/vocab", json::array(), "model.vocab"), "in place of"));
  CHECK(has(with("qwen3", "/model/vocab", json::object(), "model.vocab"), "lacks a token for the byte 0"));
  CHECK(has(with("qwen3", "/model/merges", json::object(), "model.merges"), "in place of"));
  CHECK(has(with("qwen3", "/model/merges", 3, "model.merges"), "a table is meant"));
  CHECK(has(with("qwen3", "/model/merges/2", {"a", "b", "c"}, "model.merges"), "neither all texts"));
  CHECK(has(with("qwen3", "/model/merges/2", "a b", "model.merges"), "neither all texts"));
  CHECK(has(with("qwen3", "/model/merges/2", {"qq", "b"}, "model.merges[2]"), "the token qq, which model.vocab lacks"));
  CHECK(has(with("gpt2", "/model/merges/2", "a b c", "model.merges[2]"), "two tokens with a space between"));
  CHECK(has(refusal(R"({"model": {"vocab": {"a": 1, "a": 2}, "merges": []}, "version": "1.0"})", "model.vocab"), "twice"));
  CHECK(has(refusal(R"({"version": "1.0", "version": "1.0"})", ""), "the key version comes twice"));
  CHECK(has(refusal(R"({"model": {"vocab": {}, "vocab": {}}})", ""), "the key vocab comes twice"));
}

TEST_CASE("a file that is cut or no JSON is refused at every length") {
  const std::string text = json(file_of("llama3")).dump();
  for (std::size_t length = 0; length < text.size(); length += length < 2000 || length + 300 > text.size() ? 1 : 37)
    CHECK_THROWS_AS(Tokenizer::parse(text.substr(0, length)), TokenizerError);
  CHECK(has(refusal(text + "x", ""), "it is not JSON"));
  CHECK(has(refusal(text + std::string(1, '\0') + "x", ""), "is 0, which no JSON text has"));
  CHECK(has(refusal("[]", ""), "its JSON is no object"));
  CHECK(has(refusal("3", ""), "its JSON is no object"));
  CHECK(has(refusal(R"({"a": )" + std::string(100, '[') + std::string(100, ']') + "}", ""), "nested deeper"));
  CHECK(has(refusal(R"({"version": "1.0)"
                    "\xff"
                    R"("})",
                    ""),
            "it is not JSON"));
}

TEST_CASE("patterns that PCRE2 and Oniguruma read differently are refused") {
  const auto why = [](const std::string& regex) {
    try {
      const hugging_face::detail::Pattern pattern(regex);
    } catch (const hugging_face::detail::PatternError& error) {
      return error.why;
    }
    return std::string();
  };
  for (const std::string good : {"a|b", "(?i:'s|'LL)", "[a-z0-9]+", "\\p{L}{1,3}", "\\P{N}", "[^\\s\\p{L}\\-\\]]", "x{2,}",
                                 "\\.\\*", "\\s+(?!\\S)", "/#~"})
    CHECK_MESSAGE(why(good) == "", good);
  for (const std::string bad : {"\\h",     "\\w",      "\\d",      "\\b",    "\\x41",   "\\p{Nd}",     "(?i:a|(?:\\p{Lu}))",
                                "\\p{^L}", "\\pL",     "[\\P{L}]", ".",      "^a",      "a$",          "(a)",
                                "(?<=a)b", "(?<n>a)",  "(?>a)",    "(?m:a)", "(?#a)",   "a++",         "a?+",
                                "a+?",     "a{2}+",    "a{,3}",    "a{3,2}", "a{2000}", "{",           "a}",
                                "]",       "[",        "[]",       "[^]",    "[a",      "[[:alpha:]]", "[a&&b]",
                                "[z-a]",   "[a-\\s]",  "[-a]",     "[a-]",   "[!-~]",   "\\",          "(?i:ss)",
                                "(?i:fl)", "\xc3\xa9", "a*",       "(?:",    "a|",      ")",           "*",
                                "\n"})
    CHECK_MESSAGE(why(bad) != "", bad);
  CHECK(has(with("qwen3", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+", "pre_tokenizer.pretokenizers[0].pattern.Regex"),
            "has \\w, and weft reads"));
}

TEST_CASE("a pattern that backtracks may take so much work for a text, and not for each of its matches") {
  const auto encode = [](const char* regex, const std::string& text) {
    json file = file_of("qwen3");
    file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = regex;
    const Tokenizer tokenizer = Tokenizer::parse(file.dump());
    timespec before{}, after{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    std::string said;
    try {
      tokenizer.encode(text);
    } catch (const Error& error) {
      said = error.what();
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    return std::pair(said, double(after.tv_sec - before.tv_sec) + 1e-9 * double(after.tv_nsec - before.tv_nsec));
  };
  // Each letter takes some 4 million steps, fewer than the limit of one match; 25 ms for each of 20,000 words would be 8 minutes.
  std::string words;
  for (int i = 0; i < 20'000; ++i) words += "aaaaaaaaaaaaaaaaaaaaaa ";
  const auto [steps, steps_s] = encode("(?:\\p{L}\\p{L}?)+x|\\p{L}| ", words);
  CHECK_MESSAGE(has(steps, "the pre-tokeniser's pattern gives up after byte"), steps);
  CHECK(steps_s < 30);
  // A compiled pattern scans to the end of the text for each letter, which PCRE2 counts as one step.
  const auto [time, time_s] = encode("\\p{L}+x|\\p{L}", std::string(200'000, 'a'));
  CHECK_MESSAGE(has(time, "the pre-tokeniser's pattern gives up after byte"), time);
  CHECK(time_s < 60);
  CHECK(encode("\\p{L}+x|\\p{L}", "aaab").first.empty());
}

TEST_CASE("added tokens of white space that take the white space around them") {
  // As `tokenizers` 0.23.3, which panics at the last one: of two in a row the second finds nothing left.
  const auto ids = [](bool lstrip, bool rstrip, const std::string& text) {
    json file = file_of("gpt2");
    std::size_t next = file["model"]["vocab"].size();
    const auto add = [&](const char* content, bool l, bool r) {
      file["added_tokens"].push_back({{"id", next++},
                                      {"content", content},
                                      {"single_word", false},
                                      {"lstrip", l},
                                      {"rstrip", r},
                                      {"normalized", false},
                                      {"special", false}});
    };
    add("\n", lstrip, rstrip);
    add("<m>", false, true);
    const Tokenizer tokenizer = Tokenizer::parse(file.dump());
    std::string names;
    for (const std::int32_t id : tokenizer.encode(text))
      names += id == tokenizer.id("\n") ? "n" : id == tokenizer.id("<m>") ? "m" : tokenizer.decode(std::vector{id});
    return names;
  };
  CHECK(ids(true, true, "a\n\nb") == "anb");
  CHECK(ids(true, true, "\n\n\n") == "n");
  CHECK(ids(false, true, "a\n\nb") == "annb");
  CHECK(ids(true, false, "a\n\nb") == "annb");
  CHECK(ids(true, true, "<m>\n\nb") == "mb");
  CHECK(ids(false, true, "<m>\n\nb") == "mnnb");
  CHECK(ids(true, false, "<m>\n\nb") == "mb");
}

TEST_CASE("a folder or a file is loaded") {
  const auto folder = std::filesystem::temp_directory_path() / ("weft_tokenizer_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(path_of("gpt2"), folder / "tokenizer.json");
  CHECK(Tokenizer::load(folder).encode("a") == Tokenizer::load(path_of("gpt2")).encode("a"));
  std::filesystem::remove_all(folder);
  CHECK_THROWS_WITH_AS(Tokenizer::load("/nowhere"), "weft: tokenizer: cannot read '/nowhere': there is no such file", UsageError);
}
