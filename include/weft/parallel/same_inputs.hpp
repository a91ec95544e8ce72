// SPDX-License-Identifier: Apache-2.0
#pragma once
// The comparison of the inputs of ranks: once per model the seed, the options and the config, and in each training step the
// batch. A rank with other inputs than its peers would compute, communicate and report a loss as if nothing were wrong. Ranks
// send numbers and hashes in a few small collectives on the host; the values are gathered only if something differs.
//
//   require_same_construction(mesh.communicator(), options, config);   // UsageError on all ranks

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/agree.hpp>
#include <weft/context/axes_in_force.hpp>
#include <weft/core/error.hpp>
#include <weft/core/fields.hpp>
#include <weft/core/hash.hpp>
#include <weft/data/fields.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/parallel/model_options.hpp>
#include <weft/pipeline/batch_inputs.hpp>

namespace weft::detail {

// ---- once per model

struct OptionWord {
  std::string_view name;
  std::uint64_t value;
  bool shown;  // a number with a meaning; else a hash
};
/// The options that must be the same on all ranks. A hook, a schedule and an offload are compared only by their presence.
WEFT_COLD inline auto words_of(const ModelOptions& options) {
  std::uint64_t scale = 0;
  if (options.numerics.loss_scale) hash_value(scale, *options.numerics.loss_scale);
  std::uint64_t frozen = options.freeze.size();
  for (const std::string& pattern : options.freeze) frozen = hash_of(frozen, hash_bytes(pattern.data(), pattern.size()));
  std::uint64_t layers = options.pipeline.layers.size();
  for (const std::size_t count : options.pipeline.layers) layers = hash_of(layers, count);
  std::uint64_t on_host = options.activations.on_host.size();
  for (const std::string& pattern : options.activations.on_host)
    on_host = hash_of(on_host, hash_bytes(pattern.data(), pattern.size()));
  std::uint64_t lora = options.lora.rank;
  if (lora != 0) hash_value(lora, options.lora);
  return std::array{
      OptionWord{"seed", options.seed, true},
      OptionWord{"data.first_bucket_bytes", options.data.first_bucket_bytes, true},
      OptionWord{"data.bucket_bytes", options.data.bucket_bytes, true},
      OptionWord{"shard.reduce_each_micro_batch", options.shard.reduce_each_micro_batch, true},
      OptionWord{"shard.stage", std::uint64_t(options.shard.stage), true},
      OptionWord{"data.hook", options.data.hook != nullptr, false},
      OptionWord{"shard.replicate", options.shard.replicate, true},
      OptionWord{"shard.over_domain", options.shard.over_domain, true},
      OptionWord{"numerics.reduce", options.numerics.reduce ? 1 + std::uint64_t(*options.numerics.reduce) : 0, false},
      OptionWord{"numerics.gradient", options.numerics.gradient ? 1 + std::uint64_t(*options.numerics.gradient) : 0, false},
      OptionWord{"shard.quantised_gather", options.shard.quantised_gather, true},
      OptionWord{"shard.secondary", options.shard.secondary, true},
      OptionWord{"shard.quantised_reduce", options.shard.quantised_reduce, true},
      OptionWord{"shard.quantised_reduce_bits", std::uint64_t(options.shard.quantised_reduce_bits), true},
      OptionWord{"shard.offload", options.shard.offload.make != nullptr, false},
      OptionWord{"numerics.reproducible", options.numerics.reproducible ? 1u : 0u, true},
      OptionWord{"numerics.reproducible_degree", options.numerics.reproducible_degree, true},
      OptionWord{"numerics.batch_invariant", options.numerics.batch_invariant, true},
      OptionWord{"context", std::uint64_t(options.context), false},
      OptionWord{"tensor.piece_bytes", options.tensor.piece_bytes, true},
      OptionWord{"loss.chunks", options.loss.chunks, true},
      OptionWord{"activations.on_host", on_host, false},
      OptionWord{"pipeline.schedule", options.pipeline.schedule != nullptr, false},
      OptionWord{"pipeline.layers", layers, false},
      OptionWord{"numerics.loss_scale", scale, false},
      OptionWord{"numerics.compare_every", options.numerics.compare_every, true},
      OptionWord{"numerics.recheck_every", options.numerics.recheck_every, true},
      OptionWord{"numerics.trace_nonfinite", options.numerics.trace_nonfinite, true},
      OptionWord{"freeze", frozen, false},
      OptionWord{"lora", lora, false},
  };
}

// A field of a config: its value if it is an integer, else a hash; 0 if it cannot be hashed.
template <class T>
WEFT_COLD void add_word_of(std::vector<std::uint64_t>& words, const T& field) {
  if constexpr (std::is_integral_v<T>) {
    words.push_back(static_cast<std::uint64_t>(field));
  } else {
    std::uint64_t hash = 0;
    words.push_back(hash_value(hash, field) ? hash : 0);
  }
}

[[noreturn]] void refuse_construction(const Difference& found, int ranks, std::span<const OptionWord> options,
                                      std::uint64_t numbers);

/// Throws UsageError on all ranks if the options or the config differ between ranks. Fields of a Config that is not an aggregate,
/// and fields of types without a hash, are left out. Collective.
template <class Config>
WEFT_COLD void require_same_construction(const Communicator& ranks, const ModelOptions& options, const Config& config) {
  if (ranks.size() == 1) return;
  const auto named = words_of(options);
  std::vector<std::uint64_t> words;
  for (const OptionWord& option : named) words.push_back(option.value);
  std::uint64_t numbers = 0;  // a bit for each field that can be shown as a number
  for_each_field(config, [&]<class Field>(std::size_t i, const Field& field) {
    numbers |= std::uint64_t(std::is_integral_v<Field>) << i;
    add_word_of(words, field);
  });
  if (const auto found = difference(ranks, words)) refuse_construction(*found, ranks.size(), named, numbers);
}

// ---- in each step

/// An axis whose ranks work on the same batch, or a data axis, whose ranks have shares of one batch.
struct BatchAxis {
  std::string_view name;
  const Communicator* ranks;
  unsigned bit = 0;
};

/// The parts of a batch that ranks compare: its numbers and the hashes of its fields. `step`: the number for which dropout is
/// drawn.
struct BatchWords {
  std::vector<std::uint64_t> words;
  std::vector<std::string_view> names;
  std::size_t shown = 5;                  ///< the first words are numbers with a meaning, the others hashes
  std::vector<unsigned> cut_over = {};    ///< of each word, the axes whose ranks have a piece each; empty: none
  std::size_t extents = ~std::size_t(0);  ///< the words from here on are extents of fields that are cut, max_rank - 1 of each
};
BatchWords words_of(const TokenBatch& batch, std::uint64_t step);
template <class F>
std::uint64_t hash_of_field(const F& values) {
  std::uint64_t hash = values.samples();
  for (std::size_t dim = 0; dim < values.shape().rank(); ++dim) hash = hash_of(hash, values.shape()[dim]);
  return values.read([&](auto all) { return hash_of(hash, hash_bytes(all.data(), all.size_bytes())); });
}
/// Adds the extents of a field that domain axes cut: pieces that fit together are alike in all dims but the cut one.
template <class F, class Values>
void add_extents(BatchWords& words, const Values& values) {
  if constexpr (F::cut_axes != 0) {
    for (std::size_t dim = 1; dim < Shape::max_rank; ++dim) {
      words.words.push_back(dim <= values.shape().rank() ? values.shape()[dim - 1] : 0);
      words.names.push_back(F::name);
      words.cut_over.push_back((F::template cut_dim<dx> == int(dim) ? axis_bit<dx> : 0) |
                               (F::template cut_dim<dy> == int(dim) ? axis_bit<dy> : 0) |
                               (F::template cut_dim<dz> == int(dim) ? axis_bit<dz> : 0));
    }
  }
}
template <auto... fields>
BatchWords words_of(const FieldBatch<fields...>& batch, std::uint64_t step) {
  // The values of whole fields are compared, those of pieces are not.
  const std::uint64_t choice = ((std::remove_cvref_t<decltype(fields)>::cut_axes != 0) || ...) ? batch.choice : 0;
  BatchWords words{{step, batch.first_sample, batch.samples, batch.micro_batches, choice, hash_of_field(batch[fields])...},
                   {"step", "first_sample", "samples", "micro_batches", "the choice of samples",
                    std::remove_cvref_t<decltype(fields)>::name...},
                   4,
                   {0, 0, 0, 0, 0, std::remove_cvref_t<decltype(fields)>::cut_axes...},
                   5 + sizeof...(fields)};
  (add_extents<std::remove_cvref_t<decltype(fields)>>(words, batch[fields]), ...);
  return words;
}

/// Throws UsageError on all ranks of an axis that does not cut the batch if they have different batches.
void require_same_batch(std::span<const BatchAxis> axes, const BatchWords& batch);

/// Throws UsageError on all data ranks if they are at different steps, or if their shares are not contiguous in the global batch.
/// The first share may begin anywhere, and empty shares are ignored. Returns the length of the longest sequence on any rank.
std::size_t require_shares(std::span<const BatchAxis> axes, const BatchShare& batch, std::uint64_t step, bool tokens);
/// Throws UsageError on all data ranks if they have different numbers of micro-batches.
void require_micro_batches(std::span<const BatchAxis> axes, std::size_t micro_batches);

/// The axes over which a call's batches are compared.
struct BatchAxes {
  std::vector<BatchAxis> same, data;
  bool meets = false;  ///< ranks of data axes communicate in each micro-batch: they gather parameters, sum or exchange tokens
};
BatchAxes batch_axes(const AxesInForce& axes, std::span<Hooks* const> hooks);

/// Compares the inputs of all ranks for a step; `shares`: those over data axes, too; `use`: the fields that must be there.
/// Returns the length of the longest sequence of the global batch, as far as this rank has it.
template <class B>
std::size_t require_batches(const BatchAxes& axes, std::uint64_t step, const B& batch, bool shares,
                            BatchUse use = BatchUse::all) {
  if (!axes.same.empty()) require_same_batch(axes.same, words_of(batch, step));
  const BatchShare share = share_of(batch);
  if (!axes.data.empty() && axes.meets) require_micro_batches(axes.data, share.micro_batches);
  if (!shares || axes.data.empty()) return share.length;
  batch.check(use);  // the batch's own sizes first
  return require_shares(axes.data, share, step, std::is_same_v<B, TokenBatch>);
}

/// Compares the tokens that logits follow: the same on ranks that work on them together; those of each dp rank may differ.
void require_prompt(const BatchAxes& axes, std::span<const std::int32_t> tokens);
/// The same for new tokens of several sequences.
void require_prompts(const BatchAxes& axes, std::span<const std::vector<std::int32_t>> tokens);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/parallel/same_inputs_impl.hpp>
#endif
