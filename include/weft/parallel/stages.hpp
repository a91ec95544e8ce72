// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank's chunks of a model, and what one can do with them: train, evaluate, ask for logits. The innermost thing that
// wrappers wrap.

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/philox.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/nn/batch.hpp>
#include <weft/nn/model.hpp>
#include <weft/parallel/executor.hpp>
#include <weft/parallel/schedule/erased.hpp>

namespace weft {

template <class Model>
class Stages {
 public:
  using Config = typename Model::Config;

  template <class Context>
  Stages(const Context& context, const Config& config, schedule::Erased schedule) : schedule_(schedule), config_(config) {
    const int ranks = static_cast<int>(context.size(pp{})), rank = static_cast<int>(context.rank(pp{})), stages = ranks * schedule.chunks;
    Model::check(config, {context.size(tp{}), context.size(pp{}), std::size_t(schedule.chunks)});
    if (Model::blocks(config) < std::size_t(stages))
      throw LayoutError("layers(" + std::to_string(Model::blocks(config)) + ") < pp(" + std::to_string(ranks) + ") * chunks(" + std::to_string(schedule.chunks) +
                        "): every stage holds at least one layer");
    std::set<ParameterState*> seen;
    typename Model::Front* front = nullptr;
    chunks_.reserve(schedule.chunks);
    for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
      chunks_.emplace_back(context, config, schedule.stage(rank, chunk, ranks), stages, front, seen);
      if (chunks_.back().front) front = &*chunks_.back().front;
    }
    // A parameter of several chunks (a tied embedding with both ends of the model here) is ready when all of them are.
    for (Chunk<Model>& chunk : chunks_)
      for (Unit& unit : chunk.owned)
        std::erase_if(unit.parameters, [&](ParameterState* state) {
          const bool several = std::count_if(chunks_.begin(), chunks_.end(), [&](const Chunk<Model>& other) { return other.uses(state); }) > 1;
          if (several) tied_.parameters.push_back(state);
          return several;
        });
    if constexpr (Context::has(pp{}))
      if (ranks > 1) find_tied(context, schedule.stage_rank(0, ranks), schedule.stage_rank(stages - 1, ranks));
    prepare(context);
  }

  /// One step: forward and backward of all micro-batches, gradients summed over every axis. Returns the mean loss over the
  /// tokens of the global batch, in double, the same on every rank. Gradients start anew; optimizer.step() applies them.
  template <class Context>
  double train_step(const Context& context, const Batch& batch) {
    const schedule::Table& table = this->table(context, batch);
    for_each_state([](ParameterState& state) { state.fresh = true; });
    const double count = count_targets(context, batch);
    Executor<Model, Context> executor(context, chunks_, table, batch, 1 / count);
    executor.run(false);
    sum_tied(context);
    finish(context);
    for_each_state([](ParameterState& state) { require_no_debt(state); });
    return total_loss<Context>(context, executor.loss()) / count;
  }

  /// The mean loss of a batch, without dropout and without gradients.
  template <class Context>
  double evaluate(const Context& context, const Batch& batch) {
    const schedule::Table table = forward_table(context, batch);
    const double count = count_targets(context, batch);
    Executor<Model, Context> executor(context, chunks_, table, batch);
    executor.run(true);
    finish(context);
    return total_loss<Context>(context, executor.loss()) / count;
  }

  /// The logits [vocabulary] that follow the last of these tokens, the same on every rank. All ranks give the same tokens.
  template <class Context>
  std::vector<float> next_logits(const Context& context, std::span<const std::int32_t> tokens) {
    const auto logits = all_logits(context, tokens);
    const std::size_t vocabulary = Model::vocabulary(config_);
    return std::vector<float>(logits.end() - static_cast<std::ptrdiff_t>(vocabulary), logits.end());
  }

  /// The logits [tokens, vocabulary] of one sequence, the same on every rank.
  template <class Context>
  std::vector<double> all_logits(const Context& context, std::span<const std::int32_t> tokens) {
    Batch batch;
    batch.tokens.assign(tokens.begin(), tokens.end());
    batch.targets.assign(tokens.size(), -1);
    batch.sequences = 1;
    batch.length = tokens.size();
    const schedule::Table table = forward_table(context, batch);
    Executor<Model, Context> executor(context, chunks_, table, batch);
    executor.stop_before_back = true;
    executor.run(true);
    const std::size_t vocabulary = Model::vocabulary(config_);
    std::vector<double> logits(tokens.size() * vocabulary);
    for (Chunk<Model>& chunk : chunks_) {
      if (!chunk.back) continue;
      executor.with_unit(chunk.units.back(), [&] {
        auto mine = chunk.back->logits(executor.context(), executor.last_hidden());
        if constexpr (Context::has(tp{})) gather_columns(mine.device(), to<Invariant<tp>>(executor.context(), mine), vocabulary, logits);
        else gather_columns(mine.device(), mine, vocabulary, logits);
      });
    }
    finish(context);
    if constexpr (Context::has(pp{})) {
      const int ranks = static_cast<int>(context.size(pp{}));
      context.comm(pp{}).broadcast(logits, schedule_.stage_rank(ranks * schedule_.chunks - 1, ranks));
    }
    return logits;
  }

  /// Every parameter of this rank, once.
  template <class F>
  void for_each_state(F&& f) {
    for (Chunk<Model>& chunk : chunks_)
      for (Unit& unit : chunk.owned)
        for (ParameterState* state : unit.parameters) f(*state);
    for (ParameterState* state : tied_.parameters) f(*state);
  }

  const Config& config() const { return config_; }
  const schedule::Erased& schedule() const { return schedule_; }

 private:
  template <class Context>
  const schedule::Table& table(const Context& context, const Batch& batch) {
    batch.check();
    const int ranks = static_cast<int>(context.size(pp{})), micro = static_cast<int>(batch.micro_batches);
    if (!table_ || table_->micro_batches != micro) {
      schedule_.require(ranks, micro);
      table_ = schedule_.table(ranks, micro);
    }
    return *table_;
  }
  // Forward alone has no limits on micro-batches: a rank takes its chunks in the order of the model, each for all of them.
  template <class Context>
  schedule::Table forward_table(const Context& context, const Batch& batch) const {
    batch.check();
    const int ranks = static_cast<int>(context.size(pp{})), micro_batches = static_cast<int>(batch.micro_batches);
    schedule::Table table{ranks, schedule_.chunks, micro_batches, {}, {}};
    for (int rank = 0; rank < ranks; ++rank) {
      auto& order = table.orders.emplace_back();
      auto& stages = table.stage_of.emplace_back();
      for (int chunk = 0; chunk < schedule_.chunks; ++chunk) {
        stages.push_back(schedule_.stage(rank, chunk, ranks));
        for (int micro = 0; micro < micro_batches; ++micro) order.push_back({schedule::Do::F, chunk, micro});
      }
      std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) { return stages[a.chunk] < stages[b.chunk]; });
    }
    return table;
  }

  template <class Context>
  static double count_targets(const Context& context, const Batch& batch) {
    double count = double(std::count_if(batch.targets.begin(), batch.targets.end(), [](std::int32_t target) { return target >= 0; }));
    LossAxes<typename Flow<Model, Context>::Loss>::all_reduce(context, std::span<double>(&count, 1));
    return std::max(count, 1.0);
  }
  template <class Context>
  static double total_loss(const Context& context, double loss) {
    if constexpr (Context::has(pp{})) context.comm(pp{}).all_reduce(std::span<double>(&loss, 1));
    LossAxes<typename Flow<Model, Context>::Loss>::all_reduce(context, std::span<double>(&loss, 1));
    return loss;
  }

  template <class Exec, class Z>
  static void gather_columns(Device<Exec>&, const Z& z, std::size_t vocabulary, std::vector<double>& logits) {
    const auto host = copy_to_host(z);
    for (std::size_t row = 0; row < z.rows(); ++row)
      for (std::size_t i = 0; i < vocabulary; ++i) logits[row * vocabulary + i] = double(accumulate_t<typename Z::value_type>(host[row * z.columns() + i]));
  }

  // One name on the first and the last stage is one parameter: their ranks tell each other the names that they hold.
  template <class Context>
  void find_tied(const Context& context, int first, int last) {
    const int rank = context.comm(pp{}).rank();
    if (first == last || (rank != first && rank != last)) return;
    peer_ = rank == first ? last : first;
    std::vector<std::uint64_t> mine, theirs;
    for_each_state([&](ParameterState& state) { mine.push_back(site_of(state.name)); });
    std::uint64_t count = mine.size(), their_count = 0;
    const auto& comm = context.comm(pp{});
    comm.send_recv(std::span<const std::uint64_t>(&count, 1), peer_, std::span<std::uint64_t>(&their_count, 1), peer_, tied_tag);
    theirs.resize(their_count);
    comm.send_recv(mine, peer_, theirs, peer_, tied_tag);
    for (Chunk<Model>& chunk : chunks_)
      for (Unit& unit : chunk.owned)
        std::erase_if(unit.parameters, [&](ParameterState* state) {
          if (std::find(theirs.begin(), theirs.end(), site_of(state->name)) == theirs.end()) return false;
          state->tied = true;
          if (rank == last) state->counted = false;
          tied_.parameters.push_back(state);
          return true;
        });
    std::sort(tied_.parameters.begin(), tied_.parameters.end(), [](auto* a, auto* b) { return a->name < b->name; });
  }

  // The two stages' gradients are added, first + last on both, before the sum over data ranks.
  template <class Context>
  void sum_tied(const Context& context) {
    if constexpr (Context::has(pp{})) {
      for (ParameterState* state : tied_.parameters) {
        Executor<Model, Context>::zero_if_fresh(context.device(), *state);
        if (!state->tied) continue;
        using G = accumulate_t<typename Context::scalar>;
        std::span<G> mine(static_cast<G*>(state->layer_gradient().get()), state->size());
        Buffer buffer = context.device().allocate(state->gradient_bytes());
        std::span<G> theirs(static_cast<G*>(buffer.get()), state->size());
        context.comm(pp{}).send_recv(mine, peer_, theirs, peer_, tied_tag);
        kernels::accumulate<G, G>(context.device(), mine.size(), theirs.data(), mine.data());
      }
    }
    if (tied_.parameters.empty()) return;
    for (std::size_t i = context.env.hooks.size(); i-- > 0;) context.env.hooks[i]->gradients_ready(tied_);
  }

  template <class Context>
  static void finish(const Context& context) {
    for (Hooks* hooks : context.env.hooks) hooks->finish();
  }

  // Units in the order in which their gradients become ready.
  template <class Context>
  void prepare(const Context& context) {
    std::vector<Unit*> order;
    for (std::size_t chunk = chunks_.size(); chunk-- > 0;)
      for (std::size_t unit = chunks_[chunk].owned.size(); unit-- > 0;) order.push_back(&chunks_[chunk].owned[unit]);
    if (!tied_.parameters.empty()) order.push_back(&tied_);
    for (Hooks* hooks : context.env.hooks) hooks->prepare(order);
  }

  static void require_no_debt(const ParameterState& state) {
    if (state.pending == 0) return;
    std::string axes;
    const auto name = [&]<class A>(A) { axes += state.pending & axis_bit<A> ? (axes.empty() ? "" : ", ") + std::string(A::name) : ""; };
    name(dp{}), name(cp{}), name(tp{}), name(pp{}), name(ep{}), name(etp{}), name(edp{});
    throw DebtError("the gradient of " + state.name + " still owes a sum over " + axes + " after the step: no wrapper paid it");
  }

  static constexpr int tied_tag = 0;  // sent when no pipeline message is under way

  schedule::Erased schedule_;
  Config config_;
  std::vector<Chunk<Model>> chunks_;
  Unit tied_{"tied", {}};
  int peer_ = -1;
  std::optional<schedule::Table> table_;
};

}  // namespace weft
