// SPDX-License-Identifier: Apache-2.0
// covers: weft/data/document_order.hpp weft/data/token_windows.hpp
// Windows of tokens and packed documents, compared with hand-written lists, with whole documents if requested.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <weft/data/document_order.hpp>
#include <weft/data/loader.hpp>
#include <weft/data/token_windows.hpp>
#include <weft/device/device.hpp>
#include <weft/kernels/attention_mask.hpp>
#include <weft/mesh/zigzag.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/transfer.hpp>

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

TEST_CASE("documents ordered for the ranks of cp: the same documents, and the work of the best order") {
  for (std::uint32_t seed = 0; seed < 60; ++seed)
    for (const std::size_t ranks : {2, 4}) {
      const std::size_t sequence = 32;
      std::vector<std::size_t> lengths, used;
      std::uint32_t draw = seed * 97 + 5;
      for (std::size_t left = sequence - seed % 4; left > 0;) {
        draw = draw * 1664525u + 1013904223u;
        const std::size_t length = lengths.size() == 6 ? left : std::min<std::size_t>(left, 1 + (draw >> 16) % 12);
        lengths.push_back(length);
        left -= length;
      }
      // The pairs one by one, as the mask and the zigzag cut define them.
      const auto busiest = [&](const std::vector<std::size_t>& order) {
        std::vector<std::uint64_t> pairs(ranks, 0);
        std::vector<std::size_t> sizes;
        std::size_t at = 0;
        const auto add = [&](std::size_t length) {
          for (std::size_t i = 0; i < length; ++i, ++at)
            for (std::size_t rank = 0; rank < ranks; ++rank) {
              const weft::detail::Zigzag cut{sequence, ranks, rank};
              if (cut.before(at + 1) > cut.before(at)) pairs[rank] += i + 1;
            }
        };
        for (const std::size_t document : order) sizes.push_back(lengths[document]), add(lengths[document]);
        add(sequence - at);  // padding
        REQUIRE(data::attention_pairs(sizes, sequence, ranks) == pairs);
        return *std::max_element(pairs.begin(), pairs.end());
      };
      std::vector<std::size_t> order(lengths.size());
      std::iota(order.begin(), order.end(), std::size_t(0));
      const std::uint64_t given = busiest(order);
      std::uint64_t total = (seed % 4) * (seed % 4 + 1) / 2, least = given;
      for (const std::size_t length : lengths) total += length * (length + 1) / 2;
      const std::vector<std::size_t> found = data::balanced_order(lengths, sequence, ranks);
      REQUIRE(std::is_permutation(found.begin(), found.end(), order.begin(), order.end()));
      REQUIRE(found == data::balanced_order(lengths, sequence, ranks));
      if (lengths.size() <= 6) do
          least = std::min(least, busiest(order));
        while (std::next_permutation(order.begin(), order.end()));
      INFO("seed ", seed, " ranks ", ranks, " given ", given, " least ", least, " total ", total);
      CHECK(busiest(found) <= given);
      if (lengths.size() <= 6) CHECK((busiest(found) == least || busiest(found) * ranks * 100 <= total * 101));
    }
}

namespace {

/// Pairs until the last rank of a ring is done, relative to the mean. Messages cost nothing; a rank begins a step when it has
/// ended the step before and its neighbours have begun it (comm/ring.hpp).
double ring_time(const std::vector<std::size_t>& lengths, std::size_t sequence, std::size_t ranks) {
  const std::size_t chunk = sequence / (2 * ranks);
  const auto rank_of = [&](std::size_t token) { return std::min(token / chunk, 2 * ranks - 1 - token / chunk); };
  std::vector<std::vector<double>> pairs(ranks, std::vector<double>(ranks, 0));  // [rank of the queries][rank of the keys]
  double total = 0;
  std::size_t begin = 0;
  for (const std::size_t length : lengths) {
    for (std::size_t query = begin; query < begin + length; ++query)
      for (std::size_t of = begin / chunk; of <= query / chunk; ++of) {
        const double keys = double(std::min(query + 1, (of + 1) * chunk) - std::max(begin, of * chunk));
        pairs[rank_of(query)][rank_of(of * chunk)] += keys;
        total += keys;
      }
    begin += length;
  }
  std::vector<double> start(ranks, 0), end(ranks, 0);
  for (std::size_t step = 0; step < ranks; ++step) {
    std::vector<double> next = start;
    if (step > 0)
      for (std::size_t rank = 0; rank < ranks; ++rank)
        next[rank] = std::max({end[rank], start[(rank + 1) % ranks], start[(rank + ranks - 1) % ranks]});
    start = next;
    for (std::size_t rank = 0; rank < ranks; ++rank) end[rank] = start[rank] + pairs[rank][(rank + ranks - step) % ranks];
  }
  return *std::max_element(end.begin(), end.end()) * double(ranks) / total;
}

}  // namespace

TEST_CASE("documents that fit no window in whole chunks are refused") {
  const auto refused = [](std::size_t length, std::size_t sequence, std::size_t ranks) {
    return message<ShapeError>([&] { data::balanced_order(std::vector<std::size_t>{4, length}, sequence, ranks); });
  };
  CHECK(
      refused(5, 8, 2) ==
      "weft: data: documents of 9 tokens do not fit a window of sequence(8) in two chunks for each of cp(2): 2 * cp must divide "
      "the sequence, which holds all documents");
  CHECK(refused(2, 10, 2).find("weft: data: documents of 6 tokens do not fit a window of sequence(10)") == 0);
  CHECK(refused(2, 8, 0).find("weft: data: documents of 6 tokens do not fit a window of sequence(8)") == 0);
}

TEST_CASE("the balance of the guide's table: log-normal documents in windows of 32,768") {
  const auto busiest = [](const std::vector<std::size_t>& lengths, std::size_t ranks) {  // relative to the mean
    const std::vector<std::uint64_t> pairs = data::attention_pairs(lengths, 32768, ranks);
    const double total = double(std::accumulate(pairs.begin(), pairs.end(), std::uint64_t(0)));
    return double(*std::max_element(pairs.begin(), pairs.end())) * double(ranks) / total;
  };
  const std::size_t windows = std::getenv("WEFT_TEST_LONG") ? 100 : 10;  // the guide's figures are those of 100
  for (const auto& [ranks, least_before, most_after] :
       {std::tuple{2, 1.1, 1.02}, std::tuple{4, 1.4, 1.2}, std::tuple{8, 1.7, 1.5}}) {
    std::mt19937 draw(1);
    std::lognormal_distribution<double> length(std::log(500.0), 1.5);
    double before = 0, after = 0, ring_before = 0, ring_after = 0;
    for (std::size_t window = 0; window < windows; ++window) {
      std::vector<std::size_t> lengths, ordered;
      for (std::size_t left = 32768; left > 0; left -= lengths.back())
        lengths.push_back(std::min(left, std::max<std::size_t>(1, std::size_t(length(draw)))));
      for (const std::size_t document : data::balanced_order(lengths, 32768, std::size_t(ranks)))
        ordered.push_back(lengths[document]);
      before += busiest(lengths, std::size_t(ranks)) / double(windows);
      after += busiest(ordered, std::size_t(ranks)) / double(windows);
      ring_before += ring_time(lengths, 32768, std::size_t(ranks)) / double(windows);
      ring_after += ring_time(ordered, 32768, std::size_t(ranks)) / double(windows);
    }
    MESSAGE("cp ", ranks, ": the busiest rank has ", before, " times the mean, in balanced order ", after, "; the ring ",
            ring_before, " and ", ring_after);
    CHECK(before > least_before);
    CHECK(after < most_after);
    CHECK(ring_after < 0.9 * ring_before);
  }
}

TEST_CASE("thousands of short documents are balanced, too") {
  const std::size_t sequence = std::size_t(1) << 20;
  std::mt19937 draw(1);
  std::lognormal_distribution<double> length(std::log(50.0), 1.5);
  std::vector<std::size_t> lengths, ordered;
  for (std::size_t left = sequence; left > 0; left -= lengths.back())
    lengths.push_back(std::min(left, std::max<std::size_t>(1, std::size_t(length(draw)))));
  for (const std::size_t document : data::balanced_order(lengths, sequence, 2)) ordered.push_back(lengths[document]);
  const auto given = data::attention_pairs(lengths, sequence, 2), balanced = data::attention_pairs(ordered, sequence, 2);
  const double mean = double(given[0] + given[1]) / 2;
  CHECK(double(std::max(given[0], given[1])) > 1.1 * mean);
  CHECK(double(std::max(balanced[0], balanced[1])) < 1.01 * mean);
}

TEST_CASE("the pairs of windows with padding are those that attention computes") {
  std::vector<std::uint16_t> text;
  for (const std::size_t length : {9, 20, 3, 30, 17, 4, 25, 32, 11}) {
    text.insert(text.end(), length - 1, 1);
    text.push_back(0);
  }
  const std::size_t sequence = 32, ranks = 2;
  const data::PackedDocuments packed(
      of(text), {.sequence = sequence, .separator = 0, .packing = data::Packing::whole, .balance_cp = ranks});
  DefaultDevice device;
  std::size_t padded = 0;
  for (std::size_t window = 0; window < packed.size(); ++window) {
    const Ids numbers = row<data::documents>(packed, window);
    std::vector<std::size_t> lengths;
    for (const std::int32_t number : numbers)
      if (number >= 0) lengths.resize(std::size_t(number) + 1), ++lengths.back();
    padded += numbers.back() < 0;
    Tensor<std::int32_t, DefaultDevice::execution_space> documents(device, {sequence}), first(device, {sequence / ranks}),
        end(device, {sequence / ranks});
    copy_from_host(documents, std::span<const std::int32_t>(numbers));
    std::vector<std::uint64_t> pairs(ranks, 0);
    for (std::size_t rank = 0; rank < ranks; ++rank)
      for (std::size_t of = 0; of < ranks; ++of) {
        kernels::find_key_ranges(device, {.causal = true}, documents.data(),
                                 {1, {sequence, ranks, rank}, 0, sequence / ranks, {sequence, ranks, of}, sequence / ranks},
                                 {first.data(), end.data()});
        const auto from = copy_to_host(first), to = copy_to_host(end);
        for (std::size_t i = 0; i < from.size(); ++i) pairs[rank] += std::uint64_t(std::max(0, to[i] - from[i]));
      }
    CHECK(data::attention_pairs(lengths, sequence, ranks) == pairs);
  }
  CHECK(padded > 2);
}

TEST_CASE("a window with documents in balanced order has the same documents, none of them changed") {
  std::vector<std::uint16_t> text;
  for (std::uint32_t i = 0, draw = 3; i < 400; ++i) {
    draw = draw * 1664525u + 1013904223u;
    text.push_back((draw >> 16) % 7 == 0 ? 0 : std::uint16_t(1 + i));
  }
  using Rows = std::multiset<std::vector<Ids>>;
  const auto documents_in = [](const data::PackedDocuments& packed, std::size_t window) {
    const Ids tokens = row<data::tokens>(packed, window), targets = row<data::targets>(packed, window),
              positions = row<data::positions>(packed, window), numbers = row<data::documents>(packed, window);
    std::vector<std::vector<Ids>> found;
    std::size_t padding = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (numbers[i] < 0) {
        ++padding;
        REQUIRE(targets[i] == -1);
        continue;
      }
      REQUIRE(padding == 0);
      REQUIRE(positions[i] == (i > 0 && numbers[i] == numbers[i - 1] ? positions[i - 1] + 1 : 0));
      if (positions[i] == 0) found.push_back({{}, {}});
      REQUIRE(numbers[i] == std::int32_t(found.size()) - 1);
      found.back()[0].push_back(tokens[i]);
      found.back()[1].push_back(targets[i]);
    }
    return Rows(found.begin(), found.end());
  };
  for (const bool first : {false, true})
    for (const auto packing : {data::Packing::cut, data::Packing::whole}) {
      data::PackingOptions options{.sequence = 32, .separator = 0, .separator_first = first, .packing = packing};
      const data::PackedDocuments plain(of(text), options);
      options.balance_cp = 2;
      const data::PackedDocuments ordered(of(text), options);
      REQUIRE(ordered.size() == plain.size());
      std::size_t moved = 0;
      for (std::size_t window = 0; window < plain.size(); ++window) {
        REQUIRE(documents_in(ordered, window) == documents_in(plain, window));
        moved += row<data::tokens>(ordered, window) != row<data::tokens>(plain, window);
      }
      CHECK(moved > plain.size() / 2);
      CHECK((ordered.identity().text() == plain.identity().text() && ordered.identity().settings == plain.identity().settings));
    }
  CHECK(message<ShapeError>([&] {
          data::PackedDocuments(of(text), {.sequence = 30, .separator = 0, .balance_cp = 4});
        }).find("sequence(30) % (2 * cp(4)) != 0: context parallelism cuts a sequence into two chunks for each rank") !=
        std::string::npos);
}
