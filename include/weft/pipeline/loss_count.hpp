// SPDX-License-Identifier: Apache-2.0
#pragma once
// The count of a global batch that divides its loss. A rank can count only its share, so the ranks that divide the batch sum
// their counts. A batch with a count of 0 has no loss and is refused on every rank.
//
//   const auto [counted, tokens] = sum_counts(axes, counts_of<Model>(batch), true);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <weft/autograd/model_kind.hpp>
#include <weft/comm/communicator.hpp>
#include <weft/context/axes_in_force.hpp>
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
/// This share's part of the counts.
template <class Model, class Batch>
LossCounts counts_of(const Batch& batch) {
  return {double(count_of<Model>(batch, usual_count(batch))), double(targets_of(batch))};
}

/// The counts of the global batch, given this share's. Throws UsageError on every rank if none of it counts. Collective over the
/// axes that cut the batch; the ranks of all other axes have the same batch.
WEFT_COLD inline LossCounts sum_counts(const AxesInForce& axes, const LossCounts& mine, bool tokens) {
  double counts[] = {mine.counted, mine.tokens};
  axes.for_each_data_axis([&](const Communicator& ranks) { ranks.all_reduce(std::span<double>(counts)); });
  if (counts[0] != 0) return {counts[0], counts[1]};
  if (tokens)
    throw_error<UsageError>({"batch: none of the ", std::size_t(counts[1]),
                             " targets of the global batch counts (all are negative): there is no loss; leave such a batch out"});
  throw_error<UsageError>({"batch: the count of the global batch, by which its loss is divided, is 0 of ", std::size_t(counts[1]),
                           " samples: there is no loss; leave such a batch out"});
}

/// The length of the share's longest sequence.
inline std::size_t longest_of(const BatchShare& share) {
  std::size_t longest = share.differing.empty() ? share.length : 0;
  for (const MicroBatch& micro : share.differing) longest = std::max(longest, micro.length);
  return longest;
}

}  // namespace weft::detail
