// SPDX-License-Identifier: Apache-2.0
#pragma once
// The batches of a training run on text. The global batch of step s is a pure function of (seed, s): Philox draws the start of
// each sequence. A dp rank takes its contiguous share of the sequences; micro-batches are consecutive parts of the share. So a
// step's data is the same in every layout, and a run resumes at any step without stored state.
//
//   for (auto&& batch : data::Batches(mesh, "corpus.txt", {.sequence = 256, .global_batch = 16}))
//     model.train_step(batch);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <weft/core/philox.hpp>
#include <weft/data/batch.hpp>
#include <weft/data/corpus.hpp>
#include <weft/mesh/axis.hpp>

namespace weft::data {

/// Options of Batches.
struct BatchOptions {
  std::size_t sequence = 256;     ///< bytes per sequence
  std::size_t global_batch = 16;  ///< sequences per step, over all dp ranks
  std::size_t micro_batch = 0;    ///< sequences per micro-batch on one rank; 0: the whole share
  std::uint64_t seed = 1;
  std::uint64_t first_step = 0;
  std::uint64_t steps = 1000;            ///< in the range from begin() to end()
  double validation_fraction = 0.1;      ///< used if Batches reads the files
  std::size_t validation_sequences = 0;  ///< limit, spread evenly; 0: all
};

/// A rank's number on the data axes, over which the sequences are divided.
struct Share {
  std::size_t rank = 0, size = 1;
};

namespace detail {
/// This rank's share over the data axes, the first one fastest. A mesh without data axes has one share.
template <class... A>
Share share_over(const auto& mesh, Axes<A...>) {
  Share share;
  [[maybe_unused]] const auto add = [&]<class One>(One axis) {
    if constexpr (weft::detail::is_data_axis<One>) {
      share.rank += share.size * static_cast<std::size_t>(mesh.rank(axis));
      share.size *= static_cast<std::size_t>(mesh.size(axis));
    }
  };
  (add(A{}), ...);
  return share;
}
}  // namespace detail

/// This rank's share over the data axes of its mesh. A mesh without data axes has one share.
template <class Mesh>
Share share_of(const Mesh& mesh) {
  return detail::share_over(mesh, typename Mesh::axes_type());
}

namespace detail {
/// The limit of a range's steps for `mesh`: in a rehearsal a few, which are enough to measure.
template <class Mesh>
std::uint64_t most_steps(const Mesh& mesh) {
  if constexpr (requires { mesh.world().device().rehearsal(); })
    if (const auto* const notes = mesh.world().device().rehearsal(); notes != nullptr) return notes->range_steps();
  return std::numeric_limits<std::uint64_t>::max();
}
template <class Mesh>
BatchOptions options_for(const Mesh& mesh, BatchOptions options) {
  options.steps = std::min(options.steps, most_steps(mesh));
  return options;
}
}  // namespace detail

/// One dp rank's batches: any training step, and validation batches in order.
class Batches {
 public:
  /// Throws UsageError if the corpus is shorter than a sequence, LayoutError if the sequences do not divide over the ranks.
  Batches(Share share, std::shared_ptr<const Corpus> corpus, BatchOptions options);

  template <class Mesh>
  requires(!std::is_same_v<Mesh, Share>) Batches(const Mesh& mesh, std::shared_ptr<const Corpus> corpus, BatchOptions options)
      : Batches(share_of(mesh), std::move(corpus), detail::options_for(mesh, options)) {}

  /// Reads the file and throws the errors of Corpus::read.
  template <class Mesh>
  Batches(const Mesh& mesh, const std::string& file, BatchOptions options = {})
      : Batches(mesh, std::make_shared<const Corpus>(Corpus::read({file}, {options.validation_fraction})), options) {}

  /// The number of sequences in this rank's share.
  std::size_t sequences() const { return options_.global_batch / share_.size; }
  const BatchOptions& options() const { return options_; }
  const Corpus& corpus() const { return *corpus_; }
  /// The identity for SaveOptions::data and LoadOptions::data of checkpoints: the corpus, sequence, seed and global batch.
  DataIdentity identity() const {
    DataIdentity identity = corpus_->identity();
    identity.set("sequence", std::to_string(options_.sequence));
    identity.set("seed", std::to_string(options_.seed));
    identity.set("global-batch", std::to_string(options_.global_batch));
    return identity;
  }

  /// This rank's share of the global batch of `step`.
  Batch training(std::uint64_t step) const;

  /// The number of validation sequences: parts of the validation text without overlap, limited by options().validation_sequences
  /// and spread evenly.
  std::size_t validation_sequences() const {
    const std::size_t all = validation_windows();
    return options_.validation_sequences == 0 ? all : std::min(all, options_.validation_sequences);
  }
  /// The number of batches that cover the validation sequences.
  std::size_t validation_batches() const { return (validation_sequences() + options_.global_batch - 1) / options_.global_batch; }

  /// This rank's share of validation batch `index`. Targets past the end of the validation part are -1, which losses ignore.
  Batch validation(std::size_t index) const;
  /// The number of targets in validation batch `index` over all dp ranks: the weight of its mean loss.
  std::size_t validation_targets(std::size_t index) const;

  /// The training steps as a range.
  class iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    iterator() = default;
    iterator(const Batches* batches, std::uint64_t step) : batches_(batches), step_(step) {}
    Batch operator*() const { return batches_->training(step_); }
    iterator& operator++() { return ++step_, *this; }
    iterator operator++(int) {
      auto old = *this;
      return ++step_, old;
    }
    bool operator==(const iterator& other) const { return step_ == other.step_; }

   private:
    const Batches* batches_ = nullptr;
    std::uint64_t step_ = 0;
  };
  iterator begin() const { return {this, options_.first_step}; }
  iterator end() const { return {this, options_.first_step + options_.steps}; }

 private:
  std::size_t validation_windows() const {
    const std::size_t size = corpus_->validation().size();
    return size == 0 ? 0 : (size - 1) / options_.sequence;
  }

  Batch empty(std::uint64_t step) const;

  static void fill(Batch& batch, std::size_t sequence, std::span<const std::uint8_t> text);

  std::shared_ptr<const Corpus> corpus_;
  BatchOptions options_;
  Share share_;
};
static_assert(std::input_iterator<Batches::iterator>);

}  // namespace weft::data

#ifndef WEFT_COMPILED
#include <weft/data/batches_impl.hpp>
#endif
