// SPDX-License-Identifier: Apache-2.0
#pragma once
// Datasets of some samples of another: Subset has the chosen ones, as torch.utils.data.Subset; WeightedSamples draws them with
// given probabilities, as WeightedRandomSampler with replacement.
//
//   data::Subset validation(all, {3, 14, 15});
//   data::WeightedSamples balanced(train, weights, {.samples = 50000});   // weights: one for each sample of `train`

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/philox.hpp>
#include <weft/data/dataset.hpp>

namespace weft::data {

/// Sample i is sample indices[i] of the dataset. An index may occur more than once.
template <Dataset D>
class Subset {
 public:
  using Fields = typename D::Fields;

  /// Throws UsageError for an index that the dataset does not have.
  Subset(D dataset, std::vector<std::size_t> indices) : dataset_(std::move(dataset)), indices_(std::move(indices)) {
    const std::size_t size = dataset_.size();
    for (const std::size_t index : indices_)
      if (index >= size) throw_error<UsageError>({"Subset: index ", index, " of a dataset with ", size, " samples"});
  }

  std::size_t size() const { return indices_.size(); }
  void shapes(typename Fields::Shapes& shapes) const { shapes = detail::shapes_of(dataset_); }
  void load(std::size_t i, typename Fields::Sample& sample, std::uint64_t epoch) const {
    detail::load_sample(dataset_, indices_[i], sample, epoch);
  }
  DataIdentity identity() const {
    DataIdentity identity = detail::identity_of(dataset_);
    identity.add("subset", std::to_string(weft::detail::hash_bytes(indices_.data(), indices_.size() * sizeof(std::size_t))));
    return identity;
  }

 private:
  D dataset_;
  std::vector<std::size_t> indices_;
};

/// Options of WeightedSamples.
struct WeightedOptions {
  std::size_t samples = 0;  ///< of an epoch; 0: as many as the dataset has
  std::uint64_t seed = 1;
};

/// Each sample of each epoch is drawn on its own, sample k with the probability weights[k] / sum: a pure function of (seed,
/// epoch, index). Memory: 8 bytes for each sample of the dataset.
template <Dataset D>
class WeightedSamples {
 public:
  using Fields = typename D::Fields;

  /// Throws UsageError unless there is a weight for each sample, none is below 0, and one is above.
  WeightedSamples(D dataset, const std::vector<double>& weights, WeightedOptions options = {})
      : dataset_(std::move(dataset)), samples_(options.samples), seed_(options.seed) {
    const std::size_t size = dataset_.size();
    if (weights.size() != size) throw_error<UsageError>({"WeightedSamples: ", weights.size(), " weights for ", size, " samples"});
    double sum = 0;
    for (std::size_t i = 0; i < size; ++i) {
      if (!(weights[i] >= 0) || !std::isfinite(weights[i]))
        throw_error<UsageError>(
            {"WeightedSamples: the weight of sample ", i, " is ", std::to_string(weights[i]), ", and must be at least 0"});
      sums_.push_back(sum += weights[i]);
    }
    if (!(sum > 0) || !std::isfinite(sum))
      throw_error<UsageError>({"WeightedSamples: the sum of all weights is ", std::to_string(sum)});
    if (samples_ == 0) samples_ = size;
  }

  std::size_t size() const { return samples_; }
  void shapes(typename Fields::Shapes& shapes) const { shapes = detail::shapes_of(dataset_); }
  void load(std::size_t i, typename Fields::Sample& sample, std::uint64_t epoch) const {
    detail::load_sample(dataset_, index_of(i, epoch), sample, epoch);
  }
  /// The sample of the dataset that load(i, sample, epoch) loads.
  std::size_t index_of(std::size_t i, std::uint64_t epoch) const {
    const Philox::Words words = Philox::draw(key_of(seed_, site_of("data.weighted"), epoch), i);
    const std::uint64_t bits = std::uint64_t(words.word[0]) << 21 ^ words.word[1] >> 11;  // 53
    const double place = double(bits) * 0x1p-53 * sums_.back();
    const auto above = std::upper_bound(sums_.begin(), sums_.end(), place);  // the first sum above: its weight is not 0
    return std::size_t((above == sums_.end() ? std::lower_bound(sums_.begin(), sums_.end(), sums_.back()) : above) -
                       sums_.begin());
  }
  DataIdentity identity() const {
    DataIdentity identity = detail::identity_of(dataset_);
    identity.add("weights", std::to_string(weft::detail::hash_bytes(sums_.data(), sums_.size() * sizeof(double))));
    identity.add("weighted-samples", std::to_string(samples_));
    identity.add("weighted-seed", std::to_string(seed_));
    return identity;
  }

 private:
  D dataset_;
  std::vector<double> sums_;
  std::size_t samples_;
  std::uint64_t seed_;
};

}  // namespace weft::data
