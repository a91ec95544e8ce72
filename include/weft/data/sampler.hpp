// SPDX-License-Identifier: Apache-2.0
#pragma once
// The samples of each step of a training run: a pure function of (seed, step), in which every sample occurs once per epoch.
// Sample i of a step is the same in every layout, and a run resumes at any step without stored state.
//
//   const data::Sampler sampler({.rank = 0, .size = 2}, 60000, {.global_batch = 64});
//   const auto part = sampler.part(step);                    // this rank's share of the step
//   const std::size_t index = sampler.index(part, 0);        // its first sample

#include <cstddef>
#include <cstdint>

#include <weft/data/batches.hpp>
#include <weft/data/permutation.hpp>

namespace weft::data {

/// Options of Loader.
struct LoaderOptions {
  std::size_t global_batch = 32;  ///< samples per step, over all data-parallel ranks
  std::size_t micro_batches = 1;  ///< per rank's share
  std::uint64_t seed = 1;         ///< of the order, which differs in each epoch
  std::uint64_t epochs = 1;       ///< number of epochs if `steps` is 0
  std::uint64_t first_step = 0;   ///< first step of a resumed run
  std::uint64_t steps = 0;        ///< in the range from begin() to end(); 0: up to the end of the last epoch
  bool shuffle = true;            ///< false: samples keep the dataset's order
  bool drop_last = true;          ///< an epoch omits samples that fill no whole batch, others each time; false: a smaller batch
  std::size_t ahead = 1;          ///< batches that a thread loads while others are used; 0: no thread, loads on request
  std::size_t threads = 1;        ///< on which the samples of a batch are loaded, for a dataset that decodes; no result changes
};

/// The samples of each step, for one rank's share.
class Sampler {
 public:
  /// Throws UsageError if there are no samples, or too few for one batch, LayoutError if a batch does not divide over the ranks
  /// and micro-batches.
  Sampler(Share share, std::size_t samples, LoaderOptions options);

  /// One rank's share of a step.
  struct Part {
    std::uint64_t step = 0, epoch = 0;
    std::size_t samples = 0;       ///< in this share
    std::size_t first_sample = 0;  ///< of this share, as an index into the global batch
    std::size_t place = 0;         ///< of the global batch's first sample, in the epoch
  };
  Part part(std::uint64_t step) const;
  /// The dataset index of the share's sample i.
  std::size_t index(const Part& part, std::size_t i) const {
    const std::size_t place = part.place + part.first_sample + i;
    return options_.shuffle ? static_cast<std::size_t>(Permutation(options_.seed, part.epoch, samples_)(place)) : place;
  }

  std::uint64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// One past the last step.
  std::uint64_t end_step() const { return end_step_; }
  /// Limits the range to `steps` steps.
  void end_after(std::uint64_t steps) {
    const std::uint64_t first = options_.first_step;
    if (first < end_step_ && steps < end_step_ - first) end_step_ = first + steps;
  }
  std::size_t samples() const { return samples_; }
  const LoaderOptions& options() const { return options_; }

 private:
  Share share_;
  std::size_t samples_;
  LoaderOptions options_;
  std::uint64_t steps_per_epoch_ = 0, end_step_ = 0;
};

}  // namespace weft::data

#ifndef WEFT_COMPILED
#include <weft/data/sampler_impl.hpp>
#endif
