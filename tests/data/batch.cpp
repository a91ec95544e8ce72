// SPDX-License-Identifier: Apache-2.0
// A batch counts its micro-batches, equal or not, and is refused with its numbers if they do not fit.
#include <weft/data/batch.hpp>

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace weft;

namespace {

Batch four_sequences() {
  return {.tokens = std::vector<std::int32_t>(12, 1),
          .targets = std::vector<std::int32_t>(12, 2),
          .sequences = 4,
          .length = 3,
          .micro_batches = 2};
}
Batch differing() {
  return {.tokens = std::vector<std::int32_t>(10, 1),
          .targets = std::vector<std::int32_t>(10, 2),
          .sequences = 3,
          .length = 4,
          .micro_batches = 2,
          .differing = {{2, 3}, {1, 4}}};
}
template <class Error>
std::string refusal(const Batch& batch, std::size_t vocabulary = 5) {
  try {
    batch.check(vocabulary);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("equal micro-batches share the sequences out") {
  const Batch batch = four_sequences();
  CHECK(batch.micro_batch(1).sequences == 2);
  CHECK(batch.micro_batch(1).length == 3);
  CHECK(batch.sequences_before(1) == 2);
  CHECK(batch.tokens_before(1) == 6);
  CHECK(batch.tokens_before(2) == batch.tokens.size());
  CHECK(refusal<Error>(batch).empty());
}

TEST_CASE("differing micro-batches describe their contents themselves") {
  const Batch batch = differing();
  CHECK(batch.micro_batch(0).length == 3);
  CHECK(batch.micro_batch(1).sequences == 1);
  CHECK(batch.sequences_before(2) == 3);
  CHECK(batch.tokens_before(1) == 6);
  CHECK(refusal<Error>(batch).empty());
}

TEST_CASE("a negative target does not count, every other token and target is in the vocabulary") {
  Batch batch = four_sequences();
  batch.targets[3] = -100;
  CHECK(refusal<UsageError>(batch).empty());
  CHECK(refusal<UsageError>(batch, 2) == "weft: batch: target(2) at place 0 is not in the vocabulary(2)");
  batch.tokens[7] = -1;
  CHECK(refusal<UsageError>(batch) == "weft: batch: token(-1) at place 7 is not in the vocabulary(5)");
  batch.tokens[7] = 5;
  CHECK(refusal<UsageError>(batch) == "weft: batch: token(5) at place 7 is not in the vocabulary(5)");
}

TEST_CASE("sizes that do not fit") {
  Batch batch = four_sequences();
  batch.targets.pop_back();
  CHECK(refusal<ShapeError>(batch) == "weft: batch: 12 tokens and 11 targets, expected 4 sequences * 3 of each");
  batch = four_sequences();
  batch.micro_batches = 3;
  CHECK(refusal<ShapeError>(batch).starts_with("weft: batch: sequences(4) % micro-batches(3) != 0"));
  batch.micro_batches = 0;
  CHECK(refusal<ShapeError>(batch).starts_with("weft: batch: sequences(4) % micro-batches(0) != 0"));
  batch = differing();
  batch.micro_batches = 3;
  CHECK(refusal<ShapeError>(batch).starts_with("weft: batch: 2 differing micro-batches"));
  batch = differing();
  batch.length = 3;
  CHECK(refusal<ShapeError>(batch).starts_with(
      "weft: batch: a micro-batch of 1 sequences of 4 tokens; there must be at least one of 1 to 3 tokens"));
  batch = differing();
  batch.differing[0] = {1, 3};
  CHECK(refusal<ShapeError>(batch).starts_with(
      "weft: batch: 3 sequences, 10 tokens and 10 targets, but its micro-batches hold 2 sequences and 7 of each"));
}
