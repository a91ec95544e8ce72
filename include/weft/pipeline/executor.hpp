// SPDX-License-Identifier: Apache-2.0
#pragma once
// The executor of a step: it runs a rank's actions of a schedule and calls the wrappers' hooks around each unit. A model without
// a pipeline runs as a pipeline of one stage.

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/layer/batch.hpp>
#include <weft/layer/gradient_accumulator.hpp>
#include <weft/pipeline/any_value.hpp>
#include <weft/pipeline/chunk.hpp>
#include <weft/pipeline/model_types.hpp>
#include <weft/pipeline/schedule/messages.hpp>
#include <weft/pipeline/schedule/table.hpp>
#include <weft/pipeline/schedule/timeline.hpp>
#include <weft/pipeline/stage_channel.hpp>
#include <weft/pipeline/unreduced_gradients.hpp>
#include <weft/tensor/to.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft {

namespace detail {

/// The inputs of a training step; unset if only forward runs.
struct TrainingInputs {
  double loss_gradient = 0;       ///< gradient of each micro-batch's loss
  double auxiliary_gradient = 0;  ///< gradient of one token's part of an auxiliary loss
  schedule::TimelineRecorder* timeline = nullptr;
};

/// The mode in which an executor runs its rank's actions.
struct RunMode {
  bool forward_only = false;      ///< only F runs, and nothing is kept for backward
  bool stop_before_back = false;  ///< stops before the last unit; its input is then `last_hidden`
  bool check_loss = false;        ///< checks in the first micro-batch that the loss is a sum over tokens
};

template <class Model, class Ctx,
          bool sound =
              ModelTypes<Model, Ctx>::forwards&& ModelTypes<Model, Ctx>::block_closes&& ModelTypes<Model, Ctx>::returns_loss>
class Executor {
  using T = ModelTypes<Model, Ctx>;
  using Hidden = typename T::Hidden;
  using Gradient = typename T::Gradient;
  using Loss = typename T::Loss;
  using Tokens = typename T::Tokens;
  using Documents = Tensor<std::int32_t, typename Ctx::execution_space>;
  using Action = schedule::Action;
  using Op = schedule::Op;

 public:
  Executor(Ctx context, std::vector<std::unique_ptr<Chunk<Model>>>& chunks, const schedule::Table& table, const Batch& batch,
           GradientAccumulator& accumulator, const TrainingInputs& training = {})
      : context_(std::move(context)),
        chunks_(chunks),
        table_(table),
        batch_(batch),
        accumulator_(accumulator),
        recording_(training.timeline),
        channel_(context_.device(), pipeline_of(context_)),
        done_(chunks.size(), 0) {
    for (const auto& chunk : chunks) units_ = std::max(units_, chunk->units.size());
    const std::size_t micro_batches = static_cast<std::size_t>(table.micro_batches),
                      places = chunks.size() * micro_batches * units_;
    saved_.resize(places);
    deferred_.resize(places);
    losses_.resize(micro_batches);
    sharers_ = batch.tokens.empty() ? 1 : batch.tokens_before(batch.micro_batches) / batch.tokens.size();
    context_.env.step = batch.step;
    context_.env.separates_terms = accumulator.separates_terms();
    context_.env.loss_gradient = training.loss_gradient;
    context_.env.auxiliary_gradient = training.auxiliary_gradient;
    if (!batch.documents.empty()) {
      documents_ = Documents(context_.device(), {batch.documents.size()});
      copy_from_host(documents_, std::span<const std::int32_t>(batch.documents));
    }
    seed_ = gradient_t<Loss>(context_.device(), {1});
    copy_from_host(seed_, std::span<const double>(&training.loss_gradient, 1));
  }

  /// Calls f() while the values of a unit's parameters are gathered, outside of a run.
  template <class F>
  void with_unit(Unit& unit, F&& f) {
    before(&Hooks::before_forward, unit);
    f();
    after(&Hooks::after_forward, unit);
  }

  /// Runs all actions of this rank.
  void run(const RunMode& mode) {
    mode_ = mode;
    context_.engine.records = !mode.forward_only;
    const bool forward_only = mode.forward_only;
    std::fill(done_.begin(), done_.end(), 0);
    for (Hooks* hooks : context_.engine.hooks) hooks->begin(!forward_only);
    context_.env.training = !forward_only;
    context_.engine.running = true;
    if (recording_) recording_->begin(table_);
    const schedule::Order& order = table_.orders[rank()];
    std::size_t expected = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Action action = order[i];
      while (expected <= i + 1 && expected < order.size()) expected = expect_next(order, expected);  // its input and the next
      if (recording_) recording_->start();
      const std::size_t micro = std::size_t(action.micro);
      context_.env.first_row =
          (batch_.first_sequence + batch_.sequences_before(micro)) * std::max(batch_.length, context_.engine.longest);
      sequence_length(context_.env) = batch_.micro_batch(micro).length;
      context_.env.rows = batch_.micro_batch(micro).sequences * batch_.micro_batch(micro).length;
      if (documents_)
        context_.env.documents = {documents_.buffer(),
                                  static_cast<const std::int32_t*>(documents_.data()) + batch_.tokens_before(micro)};
      if (action.what == Op::F) forward(action);
      else if (!forward_only && action.what == Op::W) weight(action);
      else if (!forward_only) backward(action, action.what == Op::B);
      if (recording_) recording_->end();
      channel_.progress();
    }
    channel_.finish();
  }

  /// The losses of this rank's micro-batches; 0 on ranks without the last stage.
  std::vector<double> losses() const {
    std::vector<double> all(static_cast<std::size_t>(table_.micro_batches));
    for (std::size_t micro = 0; micro < all.size(); ++micro)
      if (losses_[micro]) all[micro] = copy_to_host(losses_[micro].sum())[0];
    return all;
  }
  /// The hidden state that entered the last unit in the last micro-batch (for sampling). Empty on ranks without that unit.
  const Hidden& last_hidden() const { return last_hidden_; }
  const Ctx& context() const { return context_; }

  /// The inputs of a run, on the device.
  struct Inputs {
    Tokens tokens, targets;  // of all micro-batches
    gradient_t<Loss> seed;
    Documents documents = {};  // none if the batch has none
  };
  /// Later runs read their inputs from here, with the values at the time of the run (parallel/cuda/graphed_step.hpp).
  void take(const Inputs& inputs) {
    inputs_ = &inputs;
    seed_ = inputs.seed;
    documents_ = inputs.documents;
  }

 private:
  static Communicator pipeline_of(const Ctx& context) {
    if constexpr (Ctx::has(pp{})) return context.comm(pp{});
    else return Communicator();
  }
  // The place of the action's first unit.
  std::size_t place(const Action& action) const {
    return static_cast<std::size_t>(action.chunk * table_.micro_batches + action.micro) * units_;
  }
  std::size_t rank() const { return context_.rank(pp{}); }
  int rank_of(int stage) const { return schedule::rank_of(table_, stage); }

  // Posts the receive for the next action, from `at` on, that needs an input from another rank; returns the place after that
  // action.
  std::size_t expect_next(const schedule::Order& order, std::size_t at) {
    static_assert(std::is_same_v<typename Hidden::value_type, typename Gradient::value_type>);
    for (; at < order.size(); ++at) {
      if (mode_.forward_only && order[at].what != Op::F) continue;
      const schedule::Message wanted = schedule::wanted_by(table_, int(rank()), order[at]);
      if (wanted.from < 0) continue;
      channel_.template expect<typename Hidden::value_type>(wanted.from, {wanted.stage, wanted.micro, wanted.forward});
      return at + 1;
    }
    return order.size();
  }

  // One event of a unit, for every wrapper: outermost first before the unit's work, innermost first after it.
  WEFT_OUT_OF_LINE void before(void (Hooks::*event)(Unit&), Unit& unit) {
    for (Hooks* hooks : context_.engine.hooks) (hooks->*event)(unit);
  }
  WEFT_OUT_OF_LINE void after(void (Hooks::*event)(Unit&), Unit& unit) {
    for (std::size_t i = context_.engine.hooks.size(); i-- > 0;) (context_.engine.hooks[i]->*event)(unit);
  }

  Tokens tokens_of(const std::vector<std::int32_t>& all, int micro) {
    const std::size_t first = batch_.tokens_before(std::size_t(micro)) / sharers_,
                      end = batch_.tokens_before(std::size_t(micro) + 1) / sharers_;
    if (inputs_)
      return Tokens(context_.device(), {end - first}, (&all == &batch_.tokens ? inputs_->tokens : inputs_->targets).buffer(),
                    first);
    Tokens tokens(context_.device(), {end - first});
    copy_from_host(tokens, std::span<const std::int32_t>(all.data() + first, end - first));
    return tokens;
  }

  void forward(const Action& action) {
    Chunk<Model>& chunk = *chunks_[action.chunk];
    Hidden hidden;
    std::size_t unit = 0;
    const auto run = [&](auto& layer, auto& output, const auto&... inputs) {
      before(&Hooks::before_forward, chunk.units[unit]);
      auto result = weft::forward(layer, context_, inputs...);
      output = std::move(result.output);
      if (!mode_.forward_only) saved_[place(action) + unit] = AnyValue(std::move(result.saved));
      after(&Hooks::after_forward, chunk.units[unit]);
      ++unit;
    };
    if (chunk.front) {
      run(*chunk.front, hidden, tokens_of(batch_.tokens, action.micro));
    } else {
      hidden = channel_.template receive<Hidden>(rank_of(chunk.stage - 1), {chunk.stage, action.micro, true});
      if (recording_) recording_->start();
    }
    for (auto& block : chunk.blocks) run(block, hidden, hidden);
    if (chunk.back && mode_.stop_before_back) {
      last_hidden_ = std::move(hidden);
    } else if (chunk.back) {
      if (std::exchange(mode_.check_loss, false))
        with_unit(chunk.units[unit], [&] { require_sum(*chunk.back, hidden, action.micro); });
      run(*chunk.back, losses_[static_cast<std::size_t>(action.micro)], hidden, tokens_of(batch_.targets, action.micro));
    } else {
      channel_.send(hidden, rank_of(chunk.stage + 1), {chunk.stage + 1, action.micro, true});
    }
  }

  // Throws unless the loss of some tokens taken twice is twice their loss, which it is not if the loss is divided by a count. The
  // tokens are one sequence, or the rows on this rank if tp cuts rows. Nothing is checked if that would be more than a
  // micro-batch should hold.
  template <class Back>
  WEFT_COLD void require_sum(const Back& back, const Hidden& hidden, int micro) {
    constexpr bool cut = shard_dim<placement_t<Hidden, tp>> == 0;
    const std::size_t sequences = batch_.micro_batch(std::size_t(micro)).sequences, all = hidden.shape()[0],
                      rows = cut ? all : all / sequences;
    if (rows == 0 || (sequences < 2 && rows > 4096)) return;
    using H = typename Hidden::value_type;
    const std::size_t width = hidden.size() / all, parts = cut ? context_.size(tp{}) : 1;
    const std::int32_t* targets = batch_.targets.data() + batch_.tokens_before(std::size_t(micro)) / sharers_;
    Environment kept = context_.env;
    context_.env.training = false;
    context_.env.documents = nullptr;  // they are not those of these tokens
    double losses[2];
    for (const std::size_t times : {1, 2}) {
      Hidden x(context_.device(), with_extent(hidden.shape(), 0, times * rows));
      std::vector<std::int32_t> of;
      for (std::size_t time = 0; time < times; ++time)
        copy_rows(context_.device(), 1, rows * width, static_cast<const H*>(hidden.data()), 0, x.data() + time * rows * width, 0);
      for (std::size_t part = 0; part < parts; ++part)
        for (std::size_t time = 0; time < times; ++time) of.insert(of.end(), targets + part * rows, targets + (part + 1) * rows);
      Tokens tokens(context_.device(), {of.size()});
      copy_from_host(tokens, std::span<const std::int32_t>(of));
      context_.env.rows = of.size() * sharers_;
      losses[times - 1] = copy_to_host(weft::forward(back, context_, x, tokens).output.sum())[0];
    }
    static_cast<Environment&>(context_.env) = std::move(kept);
    if (!(std::abs(losses[1] - 2 * losses[0]) > 1e-4 * (std::abs(losses[0]) + std::abs(losses[1])))) return;
    throw_error<UsageError>({"the loss of this model's back is not a sum over tokens: that of ", rows, " tokens is ",
                             std::to_string(losses[0]), ", that of the same tokens twice ", std::to_string(losses[1]),
                             ". Leave out the division by a count: weft divides by the targets of the global batch that count, "
                             "and x.rows() is what one rank has of one micro-batch"});
  }

  // B computes each unit's weight gradients right after its input gradient, while the data is in cache; I defers them to W.
  void backward(const Action& action, bool whole) {
    Chunk<Model>& chunk = *chunks_[action.chunk];
    if (whole) ++done_[action.chunk];
    std::size_t unit = chunk.units.size();
    Gradient gradient;
    const auto run = [&]<class Saved, class Input = Hidden>(std::type_identity<Saved>, auto& layer, const auto& g,
                                                            std::type_identity<Input> = {}) {
      --unit;
      AnyValue& saved = saved_[place(action) + unit];
      before(&Hooks::before_backward, chunk.units[unit]);
      accumulator_.open(chunk.units[unit], static_cast<std::size_t>(action.micro));
      auto split = weft::backward_input(layer, context_, std::move(saved.template as<Saved>()), g);
      saved.reset();
      if constexpr (std::is_same_v<Input, Hidden>) gradient = input_gradient_of<Hidden>(std::move(split.input_gradient));
      else require_gradient_of<Input, decltype(split.input_gradient)>();
      if (whole) weft::backward_weight(layer, context_, std::move(split.deferred));
      else deferred_[place(action) + unit] = AnyValue(std::move(split.deferred));
      close(chunk.units[unit], action.micro, whole);
      after(&Hooks::after_backward, chunk.units[unit]);
      if (whole) ready(chunk, action.chunk, unit);
    };
    if (chunk.back) run(std::type_identity<typename T::BackSaved>(), *chunk.back, seed_);
    else gradient = channel_.template receive<Gradient>(rank_of(chunk.stage + 1), {chunk.stage, action.micro, false});
    if (recording_) recording_->start();
    for (std::size_t i = chunk.blocks.size(); i-- > 0;)
      run(std::type_identity<typename T::BlockSaved>(), chunk.blocks[i], gradient);
    if (chunk.front) run(std::type_identity<typename T::FrontSaved>(), *chunk.front, gradient, std::type_identity<Tokens>());
    else channel_.send(gradient, rank_of(chunk.stage - 1), {chunk.stage - 1, action.micro, false});
  }

  void weight(const Action& action) {
    Chunk<Model>& chunk = *chunks_[action.chunk];
    ++done_[action.chunk];
    std::size_t unit = chunk.units.size();
    const auto run = [&]<class Deferred>(std::type_identity<Deferred>, auto& layer) {
      --unit;
      AnyValue& deferred = deferred_[place(action) + unit];
      accumulator_.open(chunk.units[unit], static_cast<std::size_t>(action.micro));
      weft::backward_weight(layer, context_, std::move(deferred.template as<Deferred>()));
      deferred.reset();
      close(chunk.units[unit], action.micro, true);
      ready(chunk, action.chunk, unit);
    };
    if (chunk.back) run(std::type_identity<typename T::BackDeferred>(), *chunk.back);
    for (std::size_t i = chunk.blocks.size(); i-- > 0;) run(std::type_identity<typename T::BlockDeferred>(), chunk.blocks[i]);
    if (chunk.front) run(std::type_identity<typename T::FrontDeferred>(), *chunk.front);
  }

  void ready(Chunk<Model>& chunk, std::size_t index, std::size_t unit) {
    accumulator_.ready(chunk.trained[unit], context_.engine.hooks, done_[index] == table_.micro_batches);
  }
  // `done`: no further part of this micro-batch's backward follows.
  WEFT_OUT_OF_LINE void close(Unit& unit, int micro, bool done) {
    if (done) accumulator_.close(unit, static_cast<std::size_t>(micro), context_.engine.hooks);
    else accumulator_.leave(unit, static_cast<std::size_t>(micro));
  }

  Ctx context_;
  std::vector<std::unique_ptr<Chunk<Model>>>& chunks_;
  const schedule::Table& table_;
  const Batch& batch_;
  GradientAccumulator& accumulator_;
  schedule::TimelineRecorder* recording_;
  RunMode mode_;
  StageChannel<typename Ctx::execution_space> channel_;
  std::vector<int> done_;
  std::size_t sharers_ = 1;  // ranks of cp: each has 1/sharers_ of every sequence
  const Inputs* inputs_ = nullptr;
  gradient_t<Loss> seed_;
  std::size_t units_ = 0;                   // units per chunk and micro-batch
  std::vector<AnyValue> saved_, deferred_;  // by chunk, micro-batch and unit
  std::vector<Loss> losses_;                // by micro-batch; empty on ranks without the last stage
  Hidden last_hidden_;
  Documents documents_;  // of whole sequences, of all micro-batches; empty if the batch has none
};

/// A block is repeated, so its Output must have the placement of its Input.
template <class Input, class Output>
constexpr void require_closed() {
  static_assert(std::is_same_v<Input, Output>,
                "weft: a repeated block must return what it takes (same placement): here its output lies otherwise than its "
                "input; wrap the block's layers in Residual, or bring its output back with to_layout_of<X>; see Input and Output "
                "in this function's template arguments");
}

}  // namespace detail

template <bool yes>
constexpr void require_loss() {
  static_assert(
      yes,
      "weft: a model's back must return its loss as a LossSum: sum_losses(context, losses, targets) of one loss a token, or "
      "cross_entropy. A tensor could be a mean, and weft divides once by the tokens of the global batch that count");
}

namespace detail {

// Stands in for a model with a layer that cannot be called, with blocks that cannot follow each other, or with a back that
// returns no loss, so that there is only one error.
template <class Model, class Ctx>
class Executor<Model, Ctx, false> {
  using Hidden = typename ModelTypes<Model, Ctx>::Hidden;

 public:
  Executor(Ctx context, std::vector<std::unique_ptr<Chunk<Model>>>&, const schedule::Table&, const Batch&, GradientAccumulator&,
           const TrainingInputs& = {})
      : context_(std::move(context)) {
    if constexpr (!ModelTypes<Model, Ctx>::forwards) return;  // the reason was reported
    else if constexpr (ModelTypes<Model, Ctx>::block_closes) require_loss<ModelTypes<Model, Ctx>::returns_loss>();
    else require_closed<Hidden, typename ModelTypes<Model, Ctx>::BlockResult::output_type>();
  }
  void run(const RunMode&) {}
  std::vector<double> losses() const { return {}; }
  const Hidden& last_hidden() const { return hidden_; }
  const Ctx& context() const { return context_; }
  template <class... T>
  void with_unit(T&&...) {}

 private:
  Ctx context_;
  Hidden hidden_;
};

}  // namespace detail

}  // namespace weft
