// SPDX-License-Identifier: Apache-2.0
#pragma once
// The division of an epoch into steps and shares. Definitions for data/sampler.hpp.

#include <algorithm>
#include <limits>

#include <weft/core/inline.hpp>
#include <weft/data/sampler.hpp>

namespace weft::data {

WEFT_INLINE Sampler::Sampler(Share share, std::size_t samples, LoaderOptions options)
    : share_(share), samples_(samples), options_(options) {
  const std::size_t batch = options_.global_batch, ranks = share_.size, micros = options_.micro_batches;
  if (batch == 0 || micros == 0)
    throw_error<UsageError>({"loader: global batch(", batch, ") and micro-batches(", micros, ") must be at least 1"});
  if (samples_ == 0) throw_error<UsageError>({"loader: the dataset has no samples: its size() is 0"});
  // The product of the two may overflow.
  const auto divides = [&](std::size_t count) { return count % ranks == 0 && count / ranks % micros == 0; };
  if (!divides(batch))
    throw_error<LayoutError>({"global batch(", batch, ") % (micro-batches(", micros, ") * dp(", ranks,
                              ")) != 0: every data rank takes the same number of whole micro-batches"});
  const std::size_t rest = samples_ % batch;
  if (options_.drop_last && samples_ < batch)
    throw_error<UsageError>(
        {"loader: global batch(", batch, ") > samples(", samples_, "): no batch is whole; a smaller one, or drop_last = false"});
  if (!options_.drop_last && !divides(rest))
    throw_error<LayoutError>({"loader: the last batch of an epoch has ", rest, " of ", samples_, " samples, and ", rest,
                              " % (micro-batches(", micros, ") * dp(", ranks,
                              ")) != 0: another global batch, or drop_last = true, which leaves them out"});
  steps_per_epoch_ = samples_ / batch + (options_.drop_last || rest == 0 ? 0 : 1);
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  if (options_.steps != 0) end_step_ = options_.first_step > most - options_.steps ? most : options_.first_step + options_.steps;
  else end_step_ = options_.epochs > most / steps_per_epoch_ ? most : options_.epochs * steps_per_epoch_;
}

WEFT_INLINE Sampler::Part Sampler::part(std::uint64_t step) const {
  Part part;
  part.step = step;
  part.epoch = step / steps_per_epoch_;
  part.place = static_cast<std::size_t>(step % steps_per_epoch_) * options_.global_batch;
  part.samples = std::min(options_.global_batch, samples_ - part.place) / share_.size;
  part.first_sample = share_.rank * part.samples;
  return part;
}

}  // namespace weft::data
