// SPDX-License-Identifier: Apache-2.0
#pragma once
// `--elastic MIN:MAX`: the numbers of ranks that a run can go on with. The global batch is the same for all of them, and only the
// data parallel degree changes.
//
//   train_gpt --elastic 2:4 --reproducible                          four thread ranks, of which two may be lost
//   srun --no-kill -n 4 train_gpt --elastic 2:4 --reproducible      processes over TCP: one that is started again joins

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <weft/core/error.hpp>

#include "loop.hpp"
#include "options.hpp"
#include "setup.hpp"
#ifdef TRAIN_GPT_CHECKPOINTS
#include <weft/elastic/run.hpp>
#endif

namespace train_gpt {

#ifdef TRAIN_GPT_CHECKPOINTS

inline bool continues(const weft::elastic::Member* member) { return member != nullptr && member->continues(); }

/// Sets the global batch, and returns the range with the numbers of ranks that the layout permits. Throws the LayoutError of the
/// largest number of ranks that the batch permits if the layout does not.
inline weft::elastic::Options elastic_options(Options& o) {
  const auto [least, most] = o.elastic_range();
  std::int64_t unit = 1;
  for (const std::int64_t degree : {o.tp, o.cp, o.pp}) unit = std::min<std::int64_t>(unit * degree, 1 << 30);
  if (o.recheck > 0 && least < 2 * unit)
    throw weft::UsageError(o.program + ": --elastic " + std::to_string(least) + ":" + std::to_string(most) + " with --recheck: " +
                           std::to_string(least) + " ranks may be one data rank, and another one computes a micro-batch again; " +
                           "use MIN of at least " + std::to_string(2 * unit) + ", or leave --recheck out");
  o.global_batch = global_batch_of(o, std::max<std::int64_t>(most / unit, 1));
  const std::int64_t micro_batch = o.micro_batch.value_or(1);
  weft::elastic::Options elastic{.least = int(least),
                                 .most = int(most),
                                 .shares = std::size_t(std::max<std::int64_t>(*o.global_batch / micro_batch, 1)),
                                 .ranks_per_data_rank = int(unit),
                                 .replace_after_s = 30,
                                 .checkpoint = o.checkpoint};
  const int largest = weft::elastic::served(elastic, elastic.most);
  for (int ranks = largest; ranks >= least && ranks > 0;) {
    Options of_ranks = o;
    try {
      resolve_layout(of_ranks, std::size_t(ranks));
      elastic.layouts.push_back(ranks);
    } catch (const weft::Error&) {
      if (ranks == largest) throw;
    }
    weft::elastic::Options fewer = elastic;
    fewer.layouts.clear();
    ranks = weft::elastic::served(fewer, ranks - 1);
  }
  return elastic;
}

#else

inline bool continues(const weft::elastic::Member*) { return false; }

#endif

}  // namespace train_gpt
