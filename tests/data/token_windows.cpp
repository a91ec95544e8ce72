// SPDX-License-Identifier: Apache-2.0
// Windows of tokens and packed documents, compared with hand-written lists, with whole documents if requested.

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <weft/data/loader.hpp>
#include <weft/data/token_windows.hpp>

#include "data/support/formats.hpp"
#include "support/message.hpp"

using namespace weft;
using namespace weft_test;
using Ids = std::vector<std::int32_t>;

namespace {

data::Tokens of(const std::vector<std::uint16_t>& tokens) { return data::Tokens::from_bytes("a.bin", token_file(tokens)); }

template <auto field, class D>
Ids row(const D& dataset, std::size_t index) {
  data::Loader loader(data::Share{}, dataset, {.global_batch = 1, .shuffle = false});
  const auto batch = loader.batch(index);
  const auto values = batch[field].values();
  return {values.begin(), values.end()};
}

}  // namespace

static_assert(data::Dataset<data::TokenWindows> && data::Dataset<data::PackedDocuments>);

TEST_CASE("windows without overlap, and the token that follows each") {
  const data::TokenWindows windows(of({1, 2, 3, 4, 5, 6, 7, 8}), {.sequence = 3});
  REQUIRE(windows.size() == 2);
  CHECK(row<data::tokens>(windows, 0) == Ids{1, 2, 3});
  CHECK(row<data::targets>(windows, 0) == Ids{2, 3, 4});
  CHECK(row<data::tokens>(windows, 1) == Ids{4, 5, 6});
  CHECK(row<data::targets>(windows, 1) == Ids{5, 6, 7});
  CHECK(data::TokenWindows(of({1, 2, 3, 4, 5, 6, 7}), {.sequence = 3}).size() == 2);
  CHECK(message<UsageError>([] {
          data::TokenWindows(of({1, 2, 3}), {.sequence = 3});
        }) == "weft: data: too short: 'a.bin' has 3 tokens, a sequence of 3 needs 3 and the one after it");
  CHECK(message<UsageError>([] {
          data::TokenWindows(of({1, 2, 3}), {.sequence = 0});
        }) == "weft: data: sequence(0) must be at least 1");
}

TEST_CASE("a batch of tokens for weft's language models") {
  data::Loader loader(data::Share{1, 2},
                      data::TokenWindows(data::Tokens::of_text("to be or not to be, that is the question"), {.sequence = 5}),
                      {.global_batch = 4, .micro_batches = 2});
  Batch batch;
  std::size_t steps = 0;
  for (auto&& fields : loader) {
    data::copy_tokens(fields, batch);
    batch.check(256);
    CHECK(batch.sequences == 2);
    CHECK(batch.length == 5);
    CHECK(batch.micro_batches == 2);
    CHECK(batch.first_sequence == 2);
    CHECK(batch.step == steps++);
    CHECK(batch.tokens[1] == batch.targets[0]);
  }
  CHECK(steps == 1);
}

TEST_CASE("documents that follow each other, cut into windows") {
  // 9 ends a document: {1 2 9} {3 9} {4 5 6 7 9} {8}
  const data::PackedDocuments packed(of({1, 2, 9, 3, 9, 4, 5, 6, 7, 9, 8}), {.sequence = 4, .separator = 9});
  REQUIRE(packed.size() == 2);
  CHECK(row<data::tokens>(packed, 0) == Ids{1, 2, 9, 3});
  CHECK(row<data::targets>(packed, 0) == Ids{2, 9, -1, 9});
  CHECK(row<data::documents>(packed, 0) == Ids{0, 0, 0, 1});
  CHECK(row<data::positions>(packed, 0) == Ids{0, 1, 2, 0});
  CHECK(row<data::tokens>(packed, 1) == Ids{9, 4, 5, 6});
  CHECK(row<data::targets>(packed, 1) == Ids{-1, 5, 6, 7});
  CHECK(row<data::documents>(packed, 1) == Ids{0, 1, 1, 1});
  CHECK(row<data::positions>(packed, 1) == Ids{0, 0, 1, 2});

  const data::PackedDocuments first(of({9, 1, 2, 9, 3, 9, 4, 5, 6}), {.sequence = 4, .separator = 9, .separator_first = true});
  CHECK(row<data::targets>(first, 0) == Ids{1, 2, -1, 3});
  CHECK(row<data::documents>(first, 0) == Ids{0, 0, 0, 1});
  CHECK(row<data::targets>(first, 1) == Ids{-1, 4, 5, 6});
  CHECK(row<data::positions>(first, 1) == Ids{0, 0, 1, 2});
}

TEST_CASE("whole documents, the rest of a window is padding") {
  // {1 2 9} {3 9} {4 5 6 7 8 9} {1 9} {2}: 6 tokens fit no window of 4
  const data::PackedDocuments packed(of({1, 2, 9, 3, 9, 4, 5, 6, 7, 8, 9, 1, 9, 2}),
                                     {.sequence = 4, .separator = 9, .packing = data::Packing::whole});
  REQUIRE(packed.size() == 5);
  CHECK(row<data::tokens>(packed, 0) == Ids{1, 2, 9, 0});
  CHECK(row<data::targets>(packed, 0) == Ids{2, 9, -1, -1});
  CHECK(row<data::documents>(packed, 0) == Ids{0, 0, 0, -1});
  CHECK(row<data::tokens>(packed, 1) == Ids{3, 9, 0, 0});
  CHECK(row<data::tokens>(packed, 2) == Ids{4, 5, 6, 7});
  CHECK(row<data::targets>(packed, 2) == Ids{5, 6, 7, 8});
  CHECK(row<data::tokens>(packed, 3) == Ids{8, 9, 1, 9});
  CHECK(row<data::documents>(packed, 3) == Ids{0, 0, 1, 1});
  CHECK(row<data::tokens>(packed, 4) == Ids{2, 0, 0, 0});
  CHECK(row<data::targets>(packed, 4) == Ids{-1, -1, -1, -1});
  CHECK(message<UsageError>([] {
          data::PackedDocuments(of({1, 2, 3, 4, 5}), {.sequence = 4, .separator = 9, .packing = data::Packing::whole});
        }) == "weft: data: 'a.bin' has no separator(9) between documents in 5 tokens");
}

TEST_CASE("whatever the documents, each token comes once and each that fits lies whole in one window") {
  for (const bool first : {false, true})
    for (std::uint32_t seed = 0; seed < 60; ++seed) {
      std::vector<std::uint16_t> text;
      for (std::uint32_t i = 0, draw = seed; i < 120; ++i) {
        draw = draw * 1664525u + 1013904223u;
        text.push_back((draw >> 16) % (2 + seed % 9) == 0 ? 0 : std::uint16_t(1 + i));
      }
      text[7] = 0;
      const std::size_t length = 3 + seed % 6;
      const data::PackedDocuments packed(
          of(text), {.sequence = length, .separator = 0, .separator_first = first, .packing = data::Packing::whole});
      std::size_t at = 0;
      for (std::size_t window = 0; window < packed.size(); ++window) {
        const Ids tokens = row<data::tokens>(packed, window), documents = row<data::documents>(packed, window);
        REQUIRE(documents[0] == 0);
        const std::size_t begin = at;
        for (std::size_t i = 0; i < length && documents[i] >= 0; ++i) REQUIRE(tokens[i] == text[at++]);
        // A window does not begin inside a document that would have fitted into one.
        const auto border = [&](std::size_t i) { return i == 0 || (first ? text[i] == 0 : text[i - 1] == 0); };
        std::size_t from = begin, to = begin + 1;
        while (!border(from)) --from;
        while (to < text.size() && !border(to)) ++to;
        REQUIRE((from == begin || to - from > length));
      }
      REQUIRE(at == text.size());
    }
}
