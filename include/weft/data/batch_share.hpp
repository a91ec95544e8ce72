// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank's share of a global batch as the engine counts it, whatever its fields are: which samples it holds, how many tokens
// (or other places) each of them has, and how they are cut into micro-batches. Executors, accumulators and the checks between
// ranks take this and no batch type, so that they are compiled once.
//
//   const BatchShare share = batch.share();   // share.rows(micro), share.first_row(micro)

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <weft/core/standard.hpp>

namespace weft {

/// The size of one micro-batch, for batches whose micro-batches differ.
struct MicroBatch {
  std::size_t sequences = 0, length = 0;
};

/// The number of the training step that a batch belongs to, for which dropout is drawn. Unset at first, and after `step = {}`:
/// the model counts its steps itself. Otherwise a number like any other, which reads as 0 while it is unset.
class BatchStep {
 public:
  constexpr BatchStep() = default;
  template <std::integral N>
  constexpr BatchStep(N number) : number_(static_cast<std::uint64_t>(number)), set_(true) {}

  constexpr bool is_set() const { return set_; }
  constexpr operator std::uint64_t() const { return number_; }
  constexpr BatchStep& operator+=(std::uint64_t steps) { return *this = BatchStep(number_ + steps); }
  constexpr BatchStep& operator++() { return *this += 1; }
  constexpr BatchStep operator++(int) {
    const BatchStep before = *this;
    ++*this;
    return before;
  }

 private:
  std::uint64_t number_ = 0;
  bool set_ = false;
};

namespace detail {

/// The fields of a batch that a call needs: all of them, or those that a forward reads, which is known when it runs.
enum class BatchUse { all, inputs };

/// Refuses a field without values that a model reads.
[[noreturn]] void refuse_absent_field(std::string_view name);
/// Refuses a View that was given with another device than the model's.
[[noreturn]] void refuse_other_device(std::string_view name);

/// The samples of one rank's share of a step.
struct BatchShare {
  std::size_t first = 0;    ///< index in the global batch of this share's first sample
  std::size_t samples = 0;  ///< of this share
  std::size_t length = 1;  ///< rows of a sample that enter the model: the tokens of a sequence; of the longest one if they differ
  std::size_t micro_batches = 1;
  std::span<const MicroBatch> differing = {};    ///< [micro_batches], if they differ
  std::span<const std::int32_t> documents = {};  ///< of each row; empty: a sample is one document

  MicroBatch micro_batch(std::size_t micro) const {
    return differing.empty() ? MicroBatch{samples / micro_batches, length} : differing[micro];
  }
  /// Rows of this share before a micro-batch, those of other ranks of cp as well.
  std::size_t rows_before(std::size_t micro) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < micro; ++i) count += micro_batch(i).sequences * micro_batch(i).length;
    return count;
  }
  /// Samples of this share before a micro-batch.
  std::size_t samples_before(std::size_t micro) const {
    if (differing.empty()) return micro * (samples / micro_batches);
    std::size_t count = 0;
    for (std::size_t i = 0; i < micro; ++i) count += differing[i].sequences;
    return count;
  }
};

}  // namespace detail

}  // namespace weft
