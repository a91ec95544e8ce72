// SPDX-License-Identifier: Apache-2.0
// Batches: the same global batch in every layout, and a validation part that is covered once.

#include <doctest/doctest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <weft/data/batches.hpp>

using namespace weft;

namespace {

std::shared_ptr<const data::Corpus> text(std::size_t bytes, double fraction = 0.1) {
  std::string letters;
  for (std::size_t i = 0; i < bytes; ++i) letters += static_cast<char>((i * 2654435761u) >> 13);
  return std::make_shared<const data::Corpus>(data::Corpus::from_text(letters, {.validation_fraction = fraction}));
}

template <class E, class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the shares of any number of ranks join to the batch of one") {
  const auto corpus = text(5000);
  const data::BatchOptions options{.sequence = 32, .global_batch = 24, .micro_batch = 3, .seed = 7};
  const data::Batches whole(data::Share{}, corpus, options);
  for (const std::size_t ranks : {1, 2, 4, 8})
    for (const std::uint64_t step : {0ull, 1ull, 5'000'000'000ull}) {
      const Batch all = whole.training(step);
      std::vector<std::int32_t> tokens, targets;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Batch share = data::Batches(data::Share{rank, ranks}, corpus, options).training(step);
        share.check();
        CHECK(share.sequences == 24 / ranks);
        CHECK(share.first_sequence == rank * 24 / ranks);
        CHECK(share.micro_batches == 8 / ranks);
        CHECK(share.step == step);
        tokens.insert(tokens.end(), share.tokens.begin(), share.tokens.end());
        targets.insert(targets.end(), share.targets.begin(), share.targets.end());
      }
      CHECK(tokens == all.tokens);
      CHECK(targets == all.targets);
    }
}

TEST_CASE("a target is the byte after its token; steps and seeds differ") {
  const auto corpus = text(5000);
  const data::Batches batches(data::Share{}, corpus, {.sequence = 16, .global_batch = 8});
  const Batch a = batches.training(3);
  for (std::size_t s = 0; s < 8; ++s)
    for (std::size_t i = 0; i + 1 < 16; ++i) CHECK(a.targets[s * 16 + i] == a.tokens[s * 16 + i + 1]);
  CHECK(a.tokens == batches.training(3).tokens);
  CHECK(a.tokens != batches.training(4).tokens);
  CHECK(a.tokens != data::Batches(data::Share{}, corpus, {.sequence = 16, .global_batch = 8, .seed = 2}).training(3).tokens);
}

TEST_CASE("every start is drawn, the first and the last too") {
  std::string letters;
  for (char c = 'a'; c < 'a' + 10; ++c) letters += c;
  const auto corpus = std::make_shared<const data::Corpus>(data::Corpus::from_text(letters, {.validation_fraction = 0}));
  const data::Batches batches(data::Share{}, corpus, {.sequence = 4, .global_batch = 4});
  std::set<int> starts;
  for (std::uint64_t step = 0; step < 100; ++step) {
    const Batch batch = batches.training(step);
    for (std::size_t s = 0; s < 4; ++s) starts.insert(batch.tokens[s * 4] - 'a');
  }
  CHECK(starts == std::set<int>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("validation covers its part once, and pads with targets that do not count") {
  const auto corpus = text(1010);  // 101 bytes for validation: 10 sequences of 10
  for (const std::size_t ranks : {1, 2, 4}) {
    std::size_t counted = 0, weights = 0;
    std::set<std::vector<std::int32_t>> sequences;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const data::Batches batches(data::Share{rank, ranks}, corpus, {.sequence = 10, .global_batch = 4});
      CHECK(batches.validation_sequences() == 10);
      REQUIRE(batches.validation_batches() == 3);
      for (std::size_t i = 0; i < 3; ++i) {
        const Batch batch = batches.validation(i);
        if (rank == 0) weights += batches.validation_targets(i);
        for (std::size_t s = 0; s < batch.sequences; ++s) {
          if (batch.targets[s * 10] < 0) continue;
          counted += 10;
          sequences.insert({batch.tokens.begin() + std::ptrdiff_t(s * 10), batch.tokens.begin() + std::ptrdiff_t(s * 10 + 10)});
        }
      }
    }
    CHECK(counted == 100);
    CHECK(weights == 100);
    CHECK(sequences.size() == 10);
  }
  const data::Batches some(data::Share{}, corpus, {.sequence = 10, .global_batch = 4, .validation_sequences = 5});
  CHECK(some.validation_batches() == 2);
  CHECK(some.validation(0).tokens[10] == corpus->validation()[20]);  // spread evenly: every second one
  CHECK(data::Batches(data::Share{}, text(100, 0), {.sequence = 10}).validation_batches() == 0);
}

TEST_CASE("a range of steps") {
  const data::Batches batches(data::Share{}, text(500), {.sequence = 8, .global_batch = 2, .first_step = 5, .steps = 3});
  std::vector<std::uint64_t> steps;
  for (auto&& batch : batches) steps.push_back(batch.step);
  CHECK(steps == std::vector<std::uint64_t>{5, 6, 7});
}

TEST_CASE("batches that cannot be divided among ranks") {
  const auto corpus = text(500);
  CHECK(message<LayoutError>([&] {
          data::Batches(data::Share{0, 3}, corpus, {.sequence = 8, .global_batch = 16});
        }) == "weft: global batch(16) % dp(3) != 0: every dp rank takes the same number of sequences");
  CHECK(message<LayoutError>([&] {
          data::Batches(data::Share{0, 2}, corpus, {.sequence = 8, .global_batch = 16, .micro_batch = 3});
        }) == "weft: global batch(16) % (micro-batch(3) * dp(2)) != 0: a rank's share is cut into whole micro-batches");
  CHECK(message<UsageError>([&] { data::Batches(data::Share{}, corpus, {.sequence = 0}); }) ==
        "weft: batches: sequence(0) and global batch(16) must be at least 1");
}
