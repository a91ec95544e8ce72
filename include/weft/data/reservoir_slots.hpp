// SPDX-License-Identifier: Apache-2.0
#pragma once
// The places of a reservoir's samples: which place an arriving sample takes, and which places a step draws. Every choice is a
// function of the seed, the number of the arrival or the step, and the arrivals and draws before it.
//
//   ReservoirSlots slots({.rule = ReservoirRule::uniform, .capacity = 1000});
//   if (const auto slot = slots.arrive()) store(*slot);
//   slots.draw(step, 64, chosen);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/philox.hpp>
#include <weft/data/permutation.hpp>

namespace weft::data {

/// The samples that a reservoir keeps when it is full.
enum class ReservoirRule : std::uint8_t {
  /// A uniform sample without replacement of all that have arrived: the n-th arrival (from 1) is kept with probability
  /// capacity / n, in place of a random one (Vitter 1985, Algorithm R). Nothing waits.
  uniform,
  /// The newest ones: an arrival replaces the oldest (experience replay: Lin 1992). Nothing waits.
  latest,
  /// An arrival replaces a random one of the samples that have been drawn; it waits while none of them has. The Reservoir of
  /// Melissa (Meyer et al. 2023, arXiv:2306.16133).
  drawn_first,
  /// Each sample is drawn once and then leaves; an arrival waits while the reservoir is full (FIRO, first in, random out: the
  /// same paper).
  draw_once,
};

/// Options of Reservoir.
struct ReservoirOptions {
  ReservoirRule rule = ReservoirRule::uniform;
  std::size_t capacity = 0;  ///< samples; the high watermark
  /// The low watermark: a draw waits while fewer samples are there, until the reservoir is closed.
  std::size_t low = 0;
  std::uint64_t seed = 1;
  double deadline_s = 1800;  ///< of each wait
};

namespace detail {

class ReservoirSlots {
 public:
  /// Throws UsageError for a capacity of 0 and a low watermark above the capacity.
  explicit ReservoirSlots(const ReservoirOptions& options) : options_(options), is_drawn_(options.capacity, false) {
    if (options.capacity == 0 || options.low > options.capacity)
      throw_error<UsageError>({"reservoir: a capacity of ", options.capacity, " samples and a low watermark of ", options.low,
                               ": the capacity is at least 1, and the watermark at most the capacity"});
  }

  std::size_t size() const { return there_.size(); }
  /// The samples that have arrived.
  std::uint64_t arrived() const { return arrived_; }
  /// Whether the next arrival must wait for a draw.
  bool is_full() const {
    if (size() < options_.capacity) return false;
    return options_.rule == ReservoirRule::draw_once || (options_.rule == ReservoirRule::drawn_first && drawn_.empty());
  }
  /// Whether a draw of `count` samples need not wait.
  bool has(std::size_t count, bool closed) const { return size() >= count && (closed || size() >= options_.low); }

  /// The place of the next arrival, below the capacity; none if it is not kept. Call it only if the reservoir is not full.
  std::optional<std::size_t> arrive() {
    const std::uint64_t number = arrived_++;
    if (size() < options_.capacity) return taken();
    switch (options_.rule) {
      case ReservoirRule::uniform: {
        const std::uint64_t place = below(number, number + 1);
        if (place >= options_.capacity) return std::nullopt;
        return std::size_t(place);
      }
      case ReservoirRule::latest: return std::size_t(number % options_.capacity);
      default: return replaced(number);
    }
  }

  /// Sets `places` to `count` different places, a function of (seed, step) and of the samples that are there.
  void draw(std::uint64_t step, std::size_t count, std::vector<std::size_t>& places) {
    const Permutation order(key_of(options_.seed, site_of("reservoir.draw")), step, size());
    chosen_.clear();
    places.clear();
    for (std::size_t i = 0; i < count; ++i) {
      chosen_.push_back(std::size_t(order(i)));
      places.push_back(there_[chosen_.back()]);
    }
    if (options_.rule == ReservoirRule::draw_once) remove_chosen();
    if (options_.rule != ReservoirRule::drawn_first) return;
    for (const std::size_t place : places)
      if (!is_drawn_[place]) is_drawn_[place] = true, drawn_.push_back(place);
  }

 private:
  // A number below `bound`, uniform to 2^-64 * bound.
  std::uint64_t below(std::uint64_t number, std::uint64_t bound) const {
    const Philox::Words words = Philox::draw(key_of(options_.seed, site_of("reservoir.arrival")), number);
    return (std::uint64_t(words.word[0]) << 32 | words.word[1]) % bound;
  }
  std::size_t taken() {
    std::size_t place = there_.size();
    if (!free_.empty()) {
      place = free_.back();
      free_.pop_back();
    }
    there_.push_back(place);
    return place;
  }
  std::size_t replaced(std::uint64_t number) {
    const std::size_t at = std::size_t(below(number, drawn_.size())), place = drawn_[at];
    drawn_[at] = drawn_.back();
    drawn_.pop_back();
    is_drawn_[place] = false;
    return place;
  }
  void remove_chosen() {
    std::sort(chosen_.begin(), chosen_.end(), std::greater<>());
    for (const std::size_t at : chosen_) {
      free_.push_back(there_[at]);
      there_[at] = there_.back();
      there_.pop_back();
    }
  }

  ReservoirOptions options_;
  std::uint64_t arrived_ = 0;
  std::vector<std::size_t> there_, free_;  // places
  std::vector<bool> is_drawn_;             // of drawn_first, by place
  std::vector<std::size_t> drawn_;         // the places that are
  std::vector<std::size_t> chosen_;        // by the draw that runs, in there_
};

}  // namespace detail

}  // namespace weft::data
