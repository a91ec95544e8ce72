// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a model must know of its layout, and what a user may choose when one is made.

#include <cstddef>
#include <cstdint>

namespace weft {

/// The degrees that cut a model.
struct ModelDegrees {
  std::size_t tp = 1, pp = 1, chunks = 1;
};

struct ModelOptions {
  std::uint64_t seed = 1;                      ///< of initial weights and dropout
  std::size_t first_bucket_bytes = 1u << 20;   ///< DataParallel: the bucket that is ready first is small, so that reduction starts early
  std::size_t bucket_bytes = 25u << 20;        ///< DataParallel: the others close once they reach this
  /// FullyShardedDataParallel, stages 2 and 3: false keeps whole gradients until the last micro-batch of a step, which costs their
  /// memory and saves all reductions but one.
  bool reduce_each_micro_batch = true;
};

}  // namespace weft
