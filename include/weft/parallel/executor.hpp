// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one executor: it walks a rank's actions of a schedule for one step and calls the wrappers' hooks around each unit. A
// model without a pipeline runs as one stage of one.

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <weft/kernels/elementwise.hpp>
#include <weft/nn/batch.hpp>
#include <weft/parallel/chunk.hpp>
#include <weft/parallel/flow.hpp>
#include <weft/parallel/link.hpp>
#include <weft/parallel/schedule/messages.hpp>
#include <weft/parallel/schedule/table.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft {

template <class Model, class Ctx, bool block_closes = Flow<Model, Ctx>::block_closes>
class Executor {
  using T = Flow<Model, Ctx>;
  using Hidden = typename T::Hidden;
  using Gradient = typename T::Gradient;
  using Loss = typename T::Loss;
  using Tokens = typename T::Tokens;
  using Saved = typename T::Saved;
  using Deferred = typename T::Deferred;
  using Action = schedule::Action;
  using Do = schedule::Do;

 public:
  /// `seed`: the gradient of each micro-batch's loss; 0 where only forward runs.
  Executor(Ctx context, std::vector<Chunk<Model>>& chunks, const schedule::Table& table, const Batch& batch, double seed = 0)
      : context_(std::move(context)), chunks_(chunks), table_(table), batch_(batch), link_(context_.device(), pipeline_of(context_)), done_(chunks.size(), 0) {
    saved_.resize(chunks.size() * table.micro_batches);
    deferred_.resize(saved_.size());
    rows_ = batch.tokens.size() / batch.micro_batches;
    context_.env.length = batch.length;
    context_.env.step = batch.step;
    seed_ = gradient_t<Loss>(context_.device(), {1});
    copy_from_host(seed_, std::span<const double>(&seed, 1));
  }

  /// f() with the values of a unit's parameters at hand, outside of a run.
  template <class F>
  void with_unit(Unit& unit, F&& f) {
    before(&Hooks::before_forward, unit);
    f();
    after(&Hooks::after_forward, unit);
  }

  /// Runs all actions of this rank; with `forward_only` those other than F are left out and nothing is kept.
  void run(bool forward_only) {
    forward_only_ = forward_only;
    for (Hooks* hooks : context_.env.hooks) {
      hooks->begin(!forward_only);
      each_micro_batch_ = each_micro_batch_ || hooks->reduces_each_micro_batch();
    }
    context_.env.training = !forward_only;
    for (const Action action : table_.orders[rank()]) {
      context_.env.first_row = batch_.first_sequence * batch_.length + action.micro * rows_;
      if (action.what == Do::F) forward(action);
      else if (!forward_only && action.what == Do::W) weight(action);
      else if (!forward_only) backward(action, action.what == Do::B);
      link_.progress();
    }
    link_.finish();
  }

  /// The losses of the micro-batches, added up; 0 on ranks without the last stage.
  double loss() const {
    double sum = 0;
    for (const Loss& loss : losses_) sum += copy_to_host(loss)[0];
    return sum;
  }
  /// The hidden state that entered the last unit, of the last micro-batch (for sampling). Empty on other ranks.
  const Hidden& last_hidden() const { return last_hidden_; }
  const Ctx& context() const { return context_; }

  /// Stops before the last unit: it is given `last_hidden` to work on.
  bool stop_before_back = false;

 private:
  static Communicator pipeline_of(const Ctx& context) {
    if constexpr (Ctx::has(pp{})) return context.comm(pp{});
    else return Communicator();
  }
  std::size_t place(const Action& action) const { return static_cast<std::size_t>(action.chunk * table_.micro_batches + action.micro); }
  std::size_t rank() const { return context_.rank(pp{}); }
  int rank_of(int stage) const { return schedule::rank_of(table_, stage); }

  // One event of a unit, to every wrapper: outermost first before, innermost first after.
  void before(void (Hooks::*event)(Unit&), Unit& unit) {
    for (Hooks* hooks : context_.env.hooks) (hooks->*event)(unit);
  }
  void after(void (Hooks::*event)(Unit&), Unit& unit) {
    for (std::size_t i = context_.env.hooks.size(); i-- > 0;) (context_.env.hooks[i]->*event)(unit);
  }

  Tokens tokens_of(const std::vector<std::int32_t>& all, int micro) {
    Tokens tokens(context_.device(), {rows_});
    copy_from_host(tokens, std::span<const std::int32_t>(all).subspan(micro * rows_, rows_));
    return tokens;
  }

  void forward(const Action& action) {
    Chunk<Model>& chunk = chunks_[action.chunk];
    Saved saved;
    Hidden hidden;
    std::size_t unit = 0;
    const auto run = [&](auto&& work) {
      before(&Hooks::before_forward, chunk.units[unit]);
      work();
      after(&Hooks::after_forward, chunk.units[unit]);
      ++unit;
    };
    if (chunk.front) {
      run([&] {
        auto result = chunk.front->forward(context_, tokens_of(batch_.tokens, action.micro));
        hidden = std::move(result.output);
        if (!forward_only_) saved.front.emplace(std::move(result.saved));
      });
    } else {
      hidden = link_.template receive<Hidden>(rank_of(chunk.stage - 1), {chunk.stage, action.micro, true});
    }
    for (auto& block : chunk.blocks) {
      run([&] {
        auto result = block.forward(context_, hidden);
        hidden = std::move(result.output);
        if (!forward_only_) saved.blocks.emplace_back(std::move(result.saved));
      });
    }
    if (chunk.back && stop_before_back) {
      last_hidden_ = std::move(hidden);
    } else if (chunk.back) {
      run([&] {
        auto result = chunk.back->forward(context_, hidden, tokens_of(batch_.targets, action.micro));
        losses_.push_back(std::move(result.output));
        if (!forward_only_) saved.back.emplace(std::move(result.saved));
      });
    } else {
      link_.send(hidden, rank_of(chunk.stage + 1), {chunk.stage + 1, action.micro, true});
    }
    if (!forward_only_) saved_[place(action)] = std::make_unique<Saved>(std::move(saved));
  }

  // B does each unit's weights right after its input gradient, while they are in cache; I defers them to W.
  void backward(const Action& action, bool whole) {
    Chunk<Model>& chunk = chunks_[action.chunk];
    const std::unique_ptr<Saved> owned = std::move(saved_[place(action)]);
    Saved& saved = *owned;
    Deferred deferred;
    deferred.blocks.resize(chunk.blocks.size());
    if (whole) ++done_[action.chunk];
    std::size_t unit = chunk.units.size();
    Gradient gradient;
    const auto run = [&](auto& layer, auto& kept, const auto& g, auto& later) {
      --unit;
      before(&Hooks::before_backward, chunk.units[unit]);
      auto split = weft::backward_input(layer, context_, std::move(*kept), g);
      kept.reset();
      if constexpr (!std::is_same_v<decltype(split.input_gradient), Nothing>) {
        require_gradient_of<Hidden, decltype(split.input_gradient)>();
        gradient = std::move(split.input_gradient);
      }
      if (whole) weft::backward_weight(layer, context_, std::move(split.deferred));
      else later.emplace(std::move(split.deferred));
      after(&Hooks::after_backward, chunk.units[unit]);
      if (whole) ready(chunk, action.chunk, unit);
    };
    if (chunk.back) run(*chunk.back, saved.back, seed_, deferred.back);
    else gradient = link_.template receive<Gradient>(rank_of(chunk.stage + 1), {chunk.stage, action.micro, false});
    for (std::size_t i = chunk.blocks.size(); i-- > 0;) run(chunk.blocks[i], saved.blocks[i], gradient, deferred.blocks[i]);
    if (chunk.front) run(*chunk.front, saved.front, gradient, deferred.front);
    else link_.send(gradient, rank_of(chunk.stage - 1), {chunk.stage - 1, action.micro, false});
    if (!whole) deferred_[place(action)] = std::make_unique<Deferred>(std::move(deferred));
  }

  void weight(const Action& action) {
    Chunk<Model>& chunk = chunks_[action.chunk];
    const std::unique_ptr<Deferred> owned = std::move(deferred_[place(action)]);
    Deferred& deferred = *owned;
    ++done_[action.chunk];
    std::size_t unit = chunk.units.size();
    const auto run = [&](auto& layer, auto& later) {
      --unit;
      weft::backward_weight(layer, context_, std::move(*later));
      later.reset();
      ready(chunk, action.chunk, unit);
    };
    if (chunk.back) run(*chunk.back, deferred.back);
    for (std::size_t i = chunk.blocks.size(); i-- > 0;) run(chunk.blocks[i], deferred.blocks[i]);
    if (chunk.front) run(*chunk.front, deferred.front);
  }

  void ready(Chunk<Model>& chunk, std::size_t index, std::size_t unit) {
    if (done_[index] < table_.micro_batches && !each_micro_batch_) return;
    Unit& owned = chunk.owned[unit];
    for (ParameterState* state : owned.parameters) zero_if_fresh(context_.device(), *state);
    after(&Hooks::gradients_ready, owned);
  }

 public:
  /// A parameter that no micro-batch has used has a gradient of zero, not a missing one: others wait for it.
  template <class Exec>
  static void zero_if_fresh(Device<Exec>& device, ParameterState& state) {
    if (!std::exchange(state.fresh, false)) return;
    open_layer_gradient(device, state);
    using G = accumulate_t<typename Ctx::scalar>;
    kernels::fill(device, state.size(), static_cast<G*>(state.layer_gradient().get()), G(0));
  }

 private:
  Ctx context_;
  std::vector<Chunk<Model>>& chunks_;
  const schedule::Table& table_;
  const Batch& batch_;
  Link<typename Ctx::execution_space> link_;
  std::vector<int> done_;
  std::size_t rows_ = 0;
  bool forward_only_ = false, each_micro_batch_ = false;
  gradient_t<Loss> seed_;
  std::vector<std::unique_ptr<Saved>> saved_;        // by chunk and micro-batch
  std::vector<std::unique_ptr<Deferred>> deferred_;
  std::vector<Loss> losses_;
  Hidden last_hidden_;
};

/// A block is repeated, so its Output must lie as its Input does.
template <class Input, class Output>
constexpr void require_closed() {
  static_assert(std::is_same_v<Input, Output>,
                "weft: a repeated block must return what it takes (same placement): here its output lies otherwise than its input; wrap the "
                "block's layers in Residual, or bring its output back with to_layout_of<X>; see Input and Output in this function's template "
                "arguments");
}

// Stands in for a model whose blocks cannot follow each other, so that there is one error.
template <class Model, class Ctx>
class Executor<Model, Ctx, false> {
  using Hidden = typename Flow<Model, Ctx>::Hidden;

 public:
  template <class... T>
  explicit Executor(Ctx context, T&&...) : context_(std::move(context)) {
    require_closed<Hidden, typename Flow<Model, Ctx>::BlockResult::output_type>();
  }
  void run(bool) {}
  double loss() const { return 0; }
  const Hidden& last_hidden() const { return hidden_; }
  const Ctx& context() const { return context_; }
  template <class... T>
  static void zero_if_fresh(T&&...) {}
  template <class... T>
  void with_unit(T&&...) {}
  bool stop_before_back = false;

 private:
  Ctx context_;
  Hidden hidden_;
};

}  // namespace weft
