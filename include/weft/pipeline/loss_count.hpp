// SPDX-License-Identifier: Apache-2.0
#pragma once
// The count of a global batch that divides its loss. A rank can count only its share, so the ranks that divide the batch sum
// their counts. A batch with a count of 0 has no loss and is refused on every rank.
//
//   const auto [counted, tokens] = detail::count_targets<Model>(context, batch);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <weft/autograd/model_kind.hpp>
#include <weft/comm/communicator.hpp>
#include <weft/context/context.hpp>
#include <weft/core/text.hpp>
#include <weft/data/batch.hpp>
#include <weft/pipeline/batch_inputs.hpp>

namespace weft::detail {

struct LossCounts {
  double counted, tokens;  // the count by which the loss is divided, and all tokens (or samples), of the global batch
};

template <class Batch>
inline constexpr bool is_of_tokens = std::is_same_v<Batch, TokenBatch>;

// The default count: the targets that are not masked, or samples.
template <class Batch>
std::size_t usual_count(const Batch& batch) {
  if constexpr (is_of_tokens<Batch>)
    return std::size_t(
        std::count_if(batch.targets.begin(), batch.targets.end(), [](std::int32_t target) { return target >= 0; }));
  else return share_of(batch).samples;
}
template <class Batch>
std::size_t targets_of(const Batch& batch) {
  if constexpr (is_of_tokens<Batch>) return batch.targets.size();
  else return share_of(batch).samples;
}
template <bool tokens>
[[noreturn]] WEFT_COLD void refuse_count(std::size_t rows) {
  if constexpr (tokens)
    throw_error<UsageError>({"batch: none of the ", rows,
                             " targets of the global batch counts (all are negative): there is no loss; leave such a batch out"});
  else
    throw_error<UsageError>({"batch: the count of the global batch, by which its loss is divided, is 0 of ", rows,
                             " samples: there is no loss; leave such a batch out"});
}

/// Collective over the axes that cut the batch.
template <class Model, class Context, class Batch>
LossCounts count_targets(const Context& context, const Batch& batch) {
  double counts[] = {double(count_of<Model>(batch, usual_count(batch))), double(targets_of(batch))};
  // The sum is over the axes whose ranks have different shares; the ranks of all other axes have the same batch.
  for_each_data_axis(context, [&](const Communicator& ranks) { ranks.all_reduce(std::span<double>(counts)); });
  if (counts[0] == 0) refuse_count<is_of_tokens<Batch>>(std::size_t(counts[1]));
  return {counts[0], counts[1]};
}

/// The length of the batch's longest sequence.
template <class Batch>
std::size_t longest_of(const Batch& batch) {
  const BatchShare share = share_of(batch);
  std::size_t longest = share.differing.empty() ? share.length : 0;
  for (const MicroBatch& micro : share.differing) longest = std::max(longest, micro.length);
  return longest;
}

}  // namespace weft::detail
