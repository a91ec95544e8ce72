// SPDX-License-Identifier: Apache-2.0
#pragma once
// The inputs of a model's layers, made from a batch on the device, one micro-batch at a time: the tokens and targets of a recipe,
// or the named fields of any other model. A batch type is supported by a specialisation of InputsOf.
//
//  Inputs inputs(context, batch);
//  front.forward(context, inputs.first(micro));   // the input of the model's first unit
//   back.forward(context, hidden, inputs.last(micro));

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <weft/context/input_placement.hpp>
#include <weft/data/batch.hpp>
#include <weft/mesh/zigzag.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

/// This rank's part of a batch whose sequences cp cuts: the tokens and targets of its chunks of each; the sizes, and the
/// documents, are of whole sequences.
template <class Context>
TokenBatch cut_over_cp(const Context& context, const TokenBatch& batch) {
  TokenBatch part = batch;
  part.tokens.clear();
  part.targets.clear();
  for (std::size_t micro = 0; micro < batch.micro_batches; ++micro) {
    const Zigzag cut{batch.micro_batch(micro).length, context.size(cp{}), context.rank(cp{})};
    cut.require();
    const std::size_t first = batch.tokens_before(micro), count = batch.tokens_before(micro + 1) - first;
    cut.take(std::span<const std::int32_t>(batch.tokens.data() + first, count), part.tokens);
    if (!batch.targets.empty()) cut.take(std::span<const std::int32_t>(batch.targets.data() + first, count), part.targets);
  }
  return part;
}

/// The batch itself, which must outlive the result, or this rank's part of it if cp cuts its sequences.
template <class Context>
std::shared_ptr<const TokenBatch> part_over_cp([[maybe_unused]] const Context& context, const TokenBatch& batch) {
  if constexpr (Context::has(cp{})) return std::make_shared<const TokenBatch>(cut_over_cp(context, batch));
  else return {std::shared_ptr<const TokenBatch>(), &batch};
}
/// The number of ranks that hold parts of each sequence, for a rank's part of a batch.
inline std::size_t sharers_of(const TokenBatch& part) {
  return part.tokens.empty() ? 1 : part.tokens_before(part.micro_batches) / part.tokens.size();
}

/// The tokens and targets of a model with a front and a back: this rank's part of a batch, which must outlive this object.
template <class Context>
class TokenInputs {
 public:
  using batch_type = TokenBatch;
  static constexpr bool has_tokens = true;
  using device_type = typename Context::device_type;
  using Tokens = input_t<std::int32_t, Context>;
  using First = Tokens;
  using Last = Tokens;
  /// The inputs of all micro-batches, on the device.
  struct Held {
    Tokens tokens, targets;
  };

  TokenInputs(const Context& context, const TokenBatch& batch)
      : device_(&context.device()), part_(part_over_cp(context, batch)), sharers_(sharers_of(*part_)) {}

  First first(std::size_t micro) const { return tokens_of(part_->tokens, micro); }
  Last last(std::size_t micro) const { return tokens_of(part_->targets, micro); }
  /// Later runs read from here, with the values at the time of the run (parallel/cuda/graphed_step.hpp).
  void take(const Held& held) { held_ = &held; }

  /// Ranks that hold parts of each sequence.
  std::size_t sharers() const { return sharers_; }
  /// `parts` pieces of `count` targets each, those of a micro-batch from the `from`-th on, and each of them `times` times.
  Last repeated(std::size_t micro, std::size_t parts, std::size_t from, std::size_t count, std::size_t times) const {
    const std::int32_t* targets = part_->targets.data() + part_->tokens_before(micro) / sharers_ + from;
    std::vector<std::int32_t> of;
    for (std::size_t part = 0; part < parts; ++part)
      for (std::size_t time = 0; time < times; ++time) of.insert(of.end(), targets + part * count, targets + (part + 1) * count);
    Last tokens(*device_, {of.size()});
    send_from_host(tokens, std::span<const std::int32_t>(of));
    return tokens;
  }

 private:
  Tokens tokens_of(const std::vector<std::int32_t>& all, std::size_t micro) const {
    if (all.empty() && !part_->tokens.empty()) refuse_absent_field("targets");
    const std::size_t first = part_->tokens_before(micro) / sharers_, end = part_->tokens_before(micro + 1) / sharers_;
    if (held_) return Tokens(*device_, {end - first}, (&all == &part_->tokens ? held_->tokens : held_->targets).buffer(), first);
    Tokens tokens(*device_, {end - first});
    send_from_host(tokens, std::span<const std::int32_t>(all.data() + first, end - first));
    return tokens;
  }

  device_type* device_;
  std::shared_ptr<const TokenBatch> part_;
  std::size_t sharers_;  // ranks of cp: each has 1/sharers_ of every sequence
  const Held* held_ = nullptr;
};

/// A batch's share as the engine counts it. A batch of fields has one row a sample.
template <class B>
BatchShare share_of(const B& batch) {
  if constexpr (requires { batch.share(); }) return batch.share();
  else return {batch.first_sample, batch.samples, 1, batch.micro_batches, {}, {}};
}

/// The inputs that a model's layers get of a batch of type B. `recipe`: the model has a front and a back, to which tokens and
/// targets are given as two tensors.
template <class B, class Context, bool recipe>
struct InputsOf;
template <class Context>
struct InputsOf<TokenBatch, Context, true> {
  using type = TokenInputs<Context>;
};

}  // namespace weft::detail
