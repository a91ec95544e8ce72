// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes for test_tokenizers.py and bench/tokenizer.
//
//   tokenize FILE TEXTS OUT      TEXTS: for each text its length as uint32 and its bytes. OUT, for each: number of ids and ids
//   with
//                                special tokens, the same without, then the decoded text with and without special tokens
//   tokenize FILE TEXT           encodes the whole text once and once more, and prints megabytes in a second of the second time
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <weft/hugging_face/tokenizer.hpp>

using weft::hugging_face::Tokenizer;

namespace {

std::string contents(const char* file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(std::ofstream& out, const auto& values) {
  const auto count = std::uint32_t(values.size());
  out.write(reinterpret_cast<const char*>(&count), sizeof count);
  out.write(reinterpret_cast<const char*>(values.data()), std::streamsize(count * sizeof values[0]));
}

int speed(const Tokenizer& tokenizer, const std::string& text) {
  double seconds = 0;
  std::size_t ids = 0;
  for (int round = 0; round < 2; ++round) {
    const auto started = std::chrono::steady_clock::now();
    ids = 0;
    for (std::string_view rest = text; !rest.empty();) {  // in documents, as a program has them
      const std::string_view document = rest.substr(0, rest.find('\n', 10'000));
      ids += tokenizer.encode(document).size();
      rest.remove_prefix(std::min(rest.size(), document.size() + 1));
    }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  }
  std::printf("%.2f %zu\n", double(text.size()) / 1e6 / seconds, ids);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    const Tokenizer tokenizer = Tokenizer::load(argv[1]);
    const std::string texts = contents(argv[2]);
    if (argc == 3) return speed(tokenizer, texts);
    std::ofstream out(argv[3], std::ios::binary);
    for (std::size_t at = 0; at < texts.size();) {
      std::uint32_t length = 0;
      std::memcpy(&length, texts.data() + at, sizeof length);
      const std::string_view text = std::string_view(texts).substr(at + sizeof length, length);
      at += sizeof length + length;
      const std::vector<std::int32_t> ids = tokenizer.encode(text);
      write(out, ids);
      write(out, tokenizer.encode(text, false));
      for (const bool skip : {false, true}) {
        const std::string decoded = tokenizer.decode(ids, skip);
        write(out, decoded);
        auto stream = tokenizer.stream(skip);
        std::string pieces;
        for (const std::int32_t id : ids) pieces += stream.next(id);
        if (pieces + stream.finish() != decoded) return std::puts("the stream of ids gives another text"), 1;
      }
    }
    return out.flush() ? 0 : 1;
  } catch (const weft::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
