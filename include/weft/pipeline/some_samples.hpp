// SPDX-License-Identifier: Apache-2.0
#pragma once
// Some samples of a micro-batch, several times in one batch, for the check that a model's loss is a sum over samples
// (pipeline/loss_check.hpp).
//
//   const TokenBatch twice = some_samples(batch, micro, first, count, 2);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/data/batch.hpp>
#include <weft/data/fields.hpp>

namespace weft::detail {

/// `count` sequences of a micro-batch from its `first` on, `times` times, as one micro-batch.
WEFT_COLD inline TokenBatch some_samples(const TokenBatch& batch, std::size_t micro, std::size_t first, std::size_t count,
                                         std::size_t times) {
  const std::size_t length = batch.micro_batch(micro).length, from_token = batch.tokens_before(micro) + first * length;
  TokenBatch few{.sequences = times * count, .length = length};
  few.first_sequence = batch.first_sequence + batch.sequences_before(micro);
  const auto repeat = [&](const std::vector<std::int32_t>& from, std::vector<std::int32_t>& to) {
    if (from.empty()) return;
    const auto begin = from.begin() + std::ptrdiff_t(from_token);
    for (std::size_t time = 0; time < times; ++time) to.insert(to.end(), begin, begin + std::ptrdiff_t(count * length));
  };
  repeat(batch.tokens, few.tokens);
  repeat(batch.targets, few.targets);
  repeat(batch.documents, few.documents);
  return few;
}
/// The same of samples.
template <auto... fields>
WEFT_COLD FieldBatch<fields...> some_samples(const FieldBatch<fields...>& batch, std::size_t micro, std::size_t first,
                                             std::size_t count, std::size_t times) {
  FieldBatch<fields...> few{.samples = times * count};
  const std::size_t before = micro * batch.samples_of_micro_batch();
  few.first_sample = batch.first_sample + before;
  few.for_each([&](auto field, auto& values) {
    const auto part = batch[field].part(before + first, count);
    const auto to = values.resize(times * count, batch[field].shape());
    for (std::size_t time = 0; time < times; ++time)
      std::copy(part.begin(), part.end(), to.begin() + std::ptrdiff_t(time * part.size()));
  });
  return few;
}

}  // namespace weft::detail
