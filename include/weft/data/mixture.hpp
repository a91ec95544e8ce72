// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several datasets mixed by weight, as one dataset. An epoch takes an exact number of samples of each, and each dataset's samples
// occur once before any occurs again, over the borders of epochs, in a separate order for each dataset. All of it is a pure
// function of (seed, epoch, index): every layout sees the same samples, and a run resumes at any step.
//
//   data::Mixture<data::TokenWindows::Fields> train({{wiki, 0.7}, {code, 0.3}}, {.samples = 100000});
//   for (auto&& batch : data::Loader(mesh, train, {.global_batch = 16})) model.train_step(data::token_batch(batch));

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/philox.hpp>
#include <weft/data/dataset.hpp>
#include <weft/data/permutation.hpp>

namespace weft::data {

/// Options of Mixture.
struct MixtureOptions {
  std::size_t samples = 0;  ///< of an epoch of the mixture; 0: as many as all its datasets have
  std::uint64_t seed = 1;   ///< of the order in which each dataset's samples come
};

/// A Dataset of the samples of several. The weights need not sum to 1. A dataset with the share w has n w of an epoch's n
/// samples, rounded to whole numbers whose sum is n (largest remainders). The mixture lists its datasets one after the other, so
/// its Loader must shuffle, as it does by default.
template <class FieldsOfAll>
class Mixture {
 public:
  using Fields = FieldsOfAll;

  /// A dataset and its weight. The dataset is moved or copied; its load() is called with the number of passes over it as epoch.
  class Part {
   public:
    template <Dataset D>
    requires std::is_same_v<typename D::Fields, FieldsOfAll> Part(D dataset, double weight)
        : size_(dataset.size()), weight_(weight), shapes_(detail::shapes_of(dataset)), identity_(detail::identity_of(dataset)) {
      load_ = [kept = std::make_shared<const D>(std::move(dataset))](std::size_t index, typename Fields::Sample& sample,
                                                                     std::uint64_t pass) {
        detail::load_sample(*kept, index, sample, pass);
      };
    }

   private:
    friend Mixture;
    std::size_t size_;
    double weight_;
    typename Fields::Shapes shapes_;
    DataIdentity identity_;
    std::function<void(std::size_t, typename Fields::Sample&, std::uint64_t)> load_;
    std::size_t first_ = 0, count_ = 0;  // its samples in an epoch of the mixture
  };

  /// Throws UsageError without datasets, for an empty one, for a weight that is not above 0, and for one of which an epoch would
  /// have no sample; ShapeError if the samples of a field differ in shape.
  explicit Mixture(std::vector<Part> parts, MixtureOptions options = {}) : parts_(std::move(parts)), seed_(options.seed) {
    double weights = 0;
    for (std::size_t k = 0; k < parts_.size(); ++k) {
      const Part& part = parts_[k];
      if (part.size_ == 0) throw_error<UsageError>({"Mixture: dataset ", k, " has no samples"});
      if (!(part.weight_ > 0) || !std::isfinite(part.weight_))
        throw_error<UsageError>(
            {"Mixture: the weight of dataset ", k, " is ", std::to_string(part.weight_), ", and must be a number above 0"});
      require_shapes(k);
      weights += part.weight_;
      samples_ += part.size_;
    }
    if (parts_.empty()) throw_error<UsageError>({"Mixture: there are no datasets"});
    if (options.samples != 0) samples_ = options.samples;
    divide(weights);
  }

  std::size_t size() const { return samples_; }
  void shapes(typename Fields::Shapes& shapes) const { shapes = parts_.front().shapes_; }
  void load(std::size_t index, typename Fields::Sample& sample, std::uint64_t epoch) const {
    const auto [part, number, pass] = place_of(index, epoch);
    parts_[part].load_(number, sample, pass);
  }

  struct Place {
    std::size_t part, index;  ///< the dataset, and the sample in it
    std::uint64_t pass;       ///< over that dataset, from 0
  };
  /// The sample that load(index, sample, epoch) loads.
  Place place_of(std::size_t index, std::uint64_t epoch) const {
    std::size_t k = parts_.size() - 1;
    while (parts_[k].first_ > index) --k;
    const Part& part = parts_[k];
    const std::uint64_t drawn = epoch * part.count_ + (index - part.first_), pass = drawn / part.size_;
    return {k, std::size_t(Permutation(key_of(seed_, k), pass, part.size_)(drawn % part.size_)), pass};
  }
  /// The number of samples of dataset k in an epoch.
  std::size_t samples_of(std::size_t k) const { return parts_[k].count_; }

  /// The identity for SaveOptions::data and LoadOptions::data of checkpoints: of all datasets, with weights and options.
  DataIdentity identity() const {
    DataIdentity all;
    for (const Part& part : parts_) {
      all.add(part.identity_);
      all.add("mixture-weights", part.weight_);
    }
    // All settings of each part: two mixtures inside of one have the same names of settings.
    const auto has_settings = [](const Part& part) { return !part.identity_.settings.empty(); };
    if (std::any_of(parts_.begin(), parts_.end(), has_settings))
      for (const Part& part : parts_) {
        std::string text;
        for (const auto& [setting, value] : part.identity_.settings) text += setting + "=" + value + ";";
        all.add("mixture-settings", std::to_string(weft::detail::hash_bytes(text.data(), text.size())));
      }
    all.add("mixture-samples", std::to_string(samples_));
    all.add("mixture-seed", std::to_string(seed_));
    return all;
  }

 private:
  void require_shapes(std::size_t k) const {
    Fields().for_each([&](auto field, auto&) {
      const Shape &first = parts_[0].shapes_[field], &here = parts_[k].shapes_[field];
      if (!(first == here))
        throw_error<ShapeError>({"Mixture: a sample of field '", decltype(field)::name, "' is ", here.text(), " in dataset ", k,
                                 " and ", first.text(), " in dataset 0"});
    });
  }
  // The number of samples of each dataset, by largest remainders; of equal ones the first dataset's is rounded up.
  void divide(double weights) {
    std::vector<double> remainders;
    std::size_t given = 0;
    for (Part& part : parts_) {
      const double exact = double(samples_) * (part.weight_ / weights);
      part.count_ = std::size_t(exact);
      remainders.push_back(exact - double(part.count_));
      given += part.count_;
    }
    std::vector<std::size_t> order(parts_.size());
    std::iota(order.begin(), order.end(), std::size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
    for (std::size_t i = 0; given < samples_; ++i, ++given) ++parts_[order[i % order.size()]].count_;
    std::size_t first = 0;
    for (std::size_t k = 0; k < parts_.size(); ++k) {
      if (parts_[k].count_ == 0)
        throw_error<UsageError>({"Mixture: an epoch of ", samples_, " samples has none of dataset ", k, " with the share ",
                                 std::to_string(parts_[k].weight_ / weights),
                                 ": leave it out, or take more samples (MixtureOptions)"});
      parts_[k].first_ = std::exchange(first, first + parts_[k].count_);
    }
  }

  std::vector<Part> parts_;
  std::size_t samples_ = 0;
  std::uint64_t seed_;
};

}  // namespace weft::data
