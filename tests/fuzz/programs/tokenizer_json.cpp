// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json, any bytes: it is refused in one line, or a text comes back from its ids. "@@" stands for a vocabulary of all
// bytes.

// links: -lpcre2-8 -lutf8proc
#include <weft/hugging_face/tokenizer.hpp>

#include "fuzz/support/fuzz.hpp"

using namespace weft;

void weft_test::target(Input input) {
  static const std::string every_byte = [] {
    std::string text;
    for (int byte = 0; byte < 256; ++byte)
      text += (byte > 0 ? "," : "") +
              nlohmann::json(hugging_face::detail::ByteAlphabet::get().character(static_cast<unsigned char>(byte))).dump() + ":" +
              std::to_string(byte);
    return text;
  }();
  std::string json(input.rest());
  if (const std::size_t at = json.find("@@"); at != json.npos) json.replace(at, 2, every_byte);
  try {
    const auto tokenizer = hugging_face::Tokenizer::parse(json, "file.json");
    for (const std::string_view text : {"Hello wo\xcc\x88rld, it's 12345 <a> \n\n  <b>x", ""}) {
      const std::vector<std::int32_t> ids = tokenizer.encode(text);
      for (const std::int32_t id : ids) expect(id >= 0 && std::size_t(id) < tokenizer.vocabulary());
      auto stream = tokenizer.stream();
      std::string pieces;
      for (const std::int32_t id : ids) pieces += stream.next(id);
      expect(pieces + stream.finish() == tokenizer.decode(ids));
    }
  } catch (const Error& error) {
    expect_message(error.what());
  }
}

std::vector<std::string> weft_test::seeds() {
  const std::string byte_level = R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})";
  const auto file = [&](const std::string& normaliser, const std::string& pre, const std::string& post,
                        const std::string& merges) {
    return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":258,"content":"<a>","single_word":true,"lstrip":true,)"
           R"("rstrip":true,"normalized":true,"special":true},{"id":259,"content":"<b>","single_word":false,"lstrip":false,"rstrip":false,)"
           R"("normalized":false,"special":false}],"normalizer":)" +
           normaliser + R"(,"pre_tokenizer":)" + pre + R"(,"post_processor":)" + post + R"(,"decoder":)" + byte_level +
           R"(,"model":{"type":"BPE","dropout":null,"unk_token":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":true,)"
           R"("vocab":{@@,"ll":256,"ell":257},"merges":)" +
           merges + "}}";
  };
  const std::string split =
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'ll)|[^\\r\\n\\p{L}]?\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)"
},)"
      R"("behavior":"Isolated","invert":false},)" + byte_level + "]}";
const std::string post =
    R"({"type":"Sequence","processors":[)" + byte_level +
    R"(,{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<a>","type_id":0}},{"Sequence":{"id":"A",)"
    R"("type_id":0}}],"pair":[],"special_tokens":{"<a>":{"id":"<a>","ids":[258],"tokens":["<a>"]}}}]})";
return {file(R"({"type":"NFC"})", split, post, R"([["l","l"],["e","ll"]])"),
        file("null", byte_level, byte_level, R"(["l l","e ll"])"), "{}"};
}
