// SPDX-License-Identifier: Apache-2.0
#pragma once
// The executor of a step: it runs a rank's actions of a schedule and calls the wrappers' hooks around each unit. A model without
// a pipeline runs as a pipeline of one stage. It depends only on units (pipeline/stack_unit.hpp), not on the model or the
// context, so it is compiled once for each execution space.
//
//   Executor<Exec> executor(place, chunks, table, share, accumulator, training);
//   executor.run({});

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/device/region.hpp>
#include <weft/engine/gradient_accumulator.hpp>
#include <weft/pipeline/any_value.hpp>
#include <weft/pipeline/chunk.hpp>
#include <weft/pipeline/host_activations.hpp>
#include <weft/pipeline/loss_check.hpp>
#include <weft/pipeline/schedule/messages.hpp>
#include <weft/pipeline/schedule/receives.hpp>
#include <weft/pipeline/schedule/table.hpp>
#include <weft/pipeline/schedule/timeline.hpp>
#include <weft/pipeline/stack_unit.hpp>
#include <weft/pipeline/stage_channel.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

/// The inputs of a training step; unset if only forward runs.
struct TrainingInputs {
  double loss_gradient = 0;       ///< gradient of each micro-batch's loss
  double auxiliary_gradient = 0;  ///< gradient of one token's part of an auxiliary loss
  schedule::TimelineRecorder* timeline = nullptr;
};

/// The mode in which an executor runs its rank's actions.
struct RunMode {
  bool forward_only = false;         ///< only F runs, and nothing is kept for backward
  bool stop_before_last = false;     ///< stops before the last unit; its input is then `last_hidden`
  LossChecks* check_loss = nullptr;  ///< checks that the loss is a sum over samples, until it is settled,
  std::size_t checked = 0;           ///< in the first micro-batches, as many as every rank has
  bool rechecks = false;             ///< not a step of the training: hooks do not count it
};

/// The context of a run and its units' inputs, both type-erased. They outlive the executor.
template <class Exec>
struct RunPlace {
  Device<Exec>* device;
  Environment* env;
  EngineState* engine;
  const void* context;
  const void* inputs;
  Communicator pipeline;
};

template <class Exec>
class Executor {
  using Action = schedule::Action;
  using Op = schedule::Op;
  using Chunks = std::vector<std::unique_ptr<Chunk<Exec>>>;

 public:
  using Seed = Tensor<double, Exec>;
  using Documents = Tensor<std::int32_t, Exec>;

  WEFT_COLD Executor(RunPlace<Exec> place, Chunks& chunks, const schedule::Table& table, const BatchShare& share,
                     GradientAccumulator& accumulator, const TrainingInputs& training = {});

  /// Calls f() while the values of a unit's parameters are gathered, outside of a run.
  template <class F>
  void with_unit(Unit& unit, F&& f) {
    enter_unit(*place_.engine, unit, false);
    f();
    leave_unit(*place_.engine, unit, false);
  }

  /// Runs all actions of this rank.
  void run(const RunMode& mode);

  /// The losses of this rank's micro-batches; 0 on ranks without the last stage.
  std::vector<double> losses() const;
  /// The hidden value that entered the last unit, by micro-batch (for predictions). Empty on ranks without that unit.
  AnyValue& last_hidden(std::size_t micro) { return last_hidden_[micro]; }
  UnitCall call_of(std::size_t micro) const {
    return {place_.context, place_.inputs, place_.env, micro, share_.micro_batch(micro).sequences};
  }
  /// Sets `env` to the rows, length and documents of a micro-batch.
  void enter(std::size_t micro);
  /// In a rehearsal, sets the shapes that the neighbouring stages send.
  WEFT_COLD void rehearse(const StageShapes& shapes) { shapes_ = &shapes; }
  /// Later runs read the gradient of the loss from `seed` and the documents from `documents`, with their values at the time of
  /// the run.
  void take(const Seed& seed, const Documents& documents) {
    seed_ = seed;
    documents_ = documents;
  }

 private:
  // Index of the action's first unit in saved_ and deferred_.
  std::size_t place_of(const Action& action) const {
    return static_cast<std::size_t>(action.chunk * table_.micro_batches + action.micro) * units_;
  }
  int rank() const { return place_.pipeline.rank(); }
  int rank_of(int stage) const { return schedule::rank_of(table_, stage); }

  void begin_rehearsal(const RunMode& mode);
  WEFT_COLD void trace(const Action& action, bool begins) const;

  // Posts the receive of an action's input from another rank.
  void expect(const Action& action);

  void forward(const Action& action);
  void backward(const Action& action, bool whole);
  void weight(const Action& action);

  // Whether this chunk's backward of the step's last micro-batch has begun.
  bool last(std::size_t index) const { return done_[index] == table_.micro_batches; }
  // `done`: no further part of this micro-batch's backward follows.
  void close(Unit& unit, int micro, bool done) {
    if (done) accumulator_.close(unit, static_cast<std::size_t>(micro), place_.engine->hooks);
    else accumulator_.leave(unit, static_cast<std::size_t>(micro));
  }

  RunPlace<Exec> place_;
  Chunks& chunks_;
  const schedule::Table& table_;
  BatchShare share_;
  GradientAccumulator& accumulator_;
  schedule::TimelineRecorder* recording_;
  RunMode mode_;
  StageChannel<Exec> channel_;
  const StageShapes* shapes_ = nullptr;  // set in a rehearsal only
  std::unique_ptr<PeerProgress> peers_;
  std::vector<schedule::Receive> receives_;
  std::vector<int> done_;
  Seed seed_;
  std::size_t units_ = 0;                       // units per chunk and micro-batch
  std::vector<AnyValue> saved_, deferred_;      // by chunk, micro-batch and unit
  std::vector<HostActivations<Exec>> on_host_;  // the same
  std::vector<AnyValue> losses_;                // by micro-batch, each a Seed; empty on ranks without the last stage
  std::vector<AnyValue> last_hidden_;
  Documents documents_;  // of whole sequences, of all micro-batches; empty if the batch has none
};

template <class Exec>
Executor<Exec>::Executor(RunPlace<Exec> place, Chunks& chunks, const schedule::Table& table, const BatchShare& share,
                         GradientAccumulator& accumulator, const TrainingInputs& training)
    : place_(std::move(place)),
      chunks_(chunks),
      table_(table),
      share_(share),
      accumulator_(accumulator),
      recording_(training.timeline),
      channel_(*place_.device, place_.pipeline, share_, chunks.front()->agreed),
      receives_(table.ranks > 1 ? schedule::receives(table, rank()) : std::vector<schedule::Receive>()),
      done_(chunks.size(), 0) {
  for (const auto& chunk : chunks) units_ = std::max(units_, chunk->units.size());
  const std::size_t micro_batches = static_cast<std::size_t>(table.micro_batches),
                    places = chunks.size() * micro_batches * units_;
  saved_.resize(places);
  deferred_.resize(places);
  on_host_.resize(places);
  losses_.resize(micro_batches);
  place_.env->separates_terms = accumulator.separates_terms();
  place_.env->loss_gradient = training.loss_gradient;
  place_.env->auxiliary_gradient = training.auxiliary_gradient;
  if (!share.documents.empty()) {
    documents_ = Documents(*place_.device, {share.documents.size()});
    detail::send_from_host(documents_, share.documents);
  }
  seed_ = Seed(*place_.device, {1});
  detail::send_from_host(seed_, std::span<const double>(&training.loss_gradient, 1));
}

template <class Exec>
void Executor<Exec>::enter(std::size_t micro) {
  Environment& env = *place_.env;
  const MicroBatch size = share_.micro_batch(micro);
  env.first_row = (share_.first + share_.samples_before(micro)) * std::max(share_.length, place_.engine->longest);
  env.length = size.length;
  env.rows = size.sequences * size.length;
  if (documents_)
    env.documents = {documents_.buffer(), static_cast<const std::int32_t*>(documents_.data()) + share_.rows_before(micro)};
}

template <class Exec>
WEFT_COLD void Executor<Exec>::begin_rehearsal(const RunMode& mode) {
  Rehearsal& notes = *place_.device->rehearsal();
  notes.before_run(place_.device->arena().use());
  if (!mode.forward_only) {
    notes.before_step(&accumulator_, share_.rows_before(share_.micro_batches));
    for (const auto& chunk : chunks_)
      for (const Unit& unit : chunk->units) notes.trains(unit.name);
  }
  if (shapes_ == nullptr) return;
  if (!notes.early) peers_ = std::make_unique<PeerProgress>(table_, mode.forward_only);
  channel_.rehearse(*shapes_, peers_.get());
}

template <class Exec>
WEFT_COLD void Executor<Exec>::trace(const Action& action, bool begins) const {
  place_.device->trace()->add({.kind = begins ? RehearsedTrace::Kind::begin : RehearsedTrace::Kind::end,
                               .operation = char(action.what),
                               .a = table_.stage(rank(), action.chunk),
                               .b = action.micro,
                               .c = action.chunk});
}

template <class Exec>
void Executor<Exec>::run(const RunMode& mode) {
  if (place_.device->rehearsal() != nullptr) [[unlikely]]
    begin_rehearsal(mode);
  mode_ = mode;
  const bool forward_only = mode.forward_only;
  std::fill(done_.begin(), done_.end(), 0);
  if (mode.stop_before_last) last_hidden_.resize(std::size_t(table_.micro_batches));
  for (Hooks* hooks : place_.engine->hooks) hooks->begin(!forward_only && !mode.rechecks);
  if (place_.engine->calls) place_.engine->calls->begin_step();
  place_.env->training = !forward_only;
  place_.engine->records = !forward_only;
  if (recording_) recording_->reset(table_);
  const schedule::Order& order = table_.orders[std::size_t(rank())];
  const bool traced = place_.device->trace() != nullptr && !forward_only;
  AgreedShapes& agreed = chunks_.front()->agreed;
  agreed.begin(place_.pipeline);
  auto receive = receives_.begin();
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Action action = order[i];
    for (; receive != receives_.end() && receive->post == i; ++receive)
      if (receive->forward || !forward_only) expect(order[receive->use]);
    const trace::Region region([&] {
      const char* const what = action.what == Op::F ? "forward " : action.what == Op::W ? "weight " : "backward ";
      return joined(
          {what, action.micro, chunks_.size() > 1 ? " chunk " : "", chunks_.size() > 1 ? std::to_string(action.chunk) : ""});
    });
    if (recording_) recording_->start();
    if (traced) [[unlikely]]
      trace(action, true);
    enter(std::size_t(action.micro));
    if (action.what == Op::F) forward(action);
    else if (!forward_only && action.what == Op::W) weight(action);
    else if (!forward_only) backward(action, action.what == Op::B);
    if (recording_) recording_->end();
    if (traced) [[unlikely]]
      trace(action, false);
    channel_.progress();
  }
  channel_.wait_for_sends();
  agreed.agree();
}

template <class Exec>
std::vector<double> Executor<Exec>::losses() const {
  std::vector<double> all(losses_.size());
  for (std::size_t micro = 0; micro < all.size(); ++micro)
    if (losses_[micro]) all[micro] = copy_to_host(losses_[micro].template as<Seed>())[0];
  return all;
}

template <class Exec>
void Executor<Exec>::expect(const Action& action) {
  const schedule::Message wanted = schedule::wanted_by(table_, rank(), action);
  const Chunk<Exec>& chunk = *chunks_[std::size_t(action.chunk)];
  if (!wanted.forward && !chunk.receives_gradients()) return;
  const auto& layers = chunk.layers;
  const Transport<Exec>& transport =
      wanted.forward ? *layers.front()->transports().input : *layers.back()->transports().output_gradient;
  transport.expect(channel_, wanted.from, {wanted.stage, wanted.micro, wanted.forward});
}

template <class Exec>
void Executor<Exec>::forward(const Action& action) {
  Chunk<Exec>& chunk = *chunks_[action.chunk];
  UnitCall call = call_of(std::size_t(action.micro));
  AnyValue hidden;
  if (!chunk.first) {
    hidden =
        chunk.layers.front()->transports().input->receive(channel_, rank_of(chunk.stage - 1), {chunk.stage, action.micro, true});
    if (recording_) recording_->start();
  }
  for (std::size_t unit = 0; unit < chunk.layers.size(); ++unit) {
    StackUnit<Exec>& layer = *chunk.layers[unit];
    const bool last = chunk.last && unit + 1 == chunk.layers.size();
    if (last && mode_.stop_before_last) {
      last_hidden_[call.micro] = std::move(hidden);
      return;
    }
    if (last && mode_.check_loss != nullptr && call.micro < mode_.checked && mode_.check_loss->due())
      with_unit(chunk.units[unit], [&] {
        if (layer.require_sum(call, hidden)) mode_.check_loss->settle();
      });
    const trace::Region region([&] { return chunk.units[unit].name; });
    AnyValue inputs = layer.inputs(call);
    const bool records = !mode_.forward_only && chunk.backwards[unit].runs;
    place_.engine->records = records;
    call.input_gradient = chunk.backwards[unit].input;
    enter_unit(*place_.engine, chunk.units[unit], false);
    const std::size_t place = place_of(action) + unit;
    const bool leaves = records && chunk.on_host[unit];
    std::optional<MadeTensors> made;
    if (leaves) made.emplace();
    layer.forward(call, inputs, hidden, last ? losses_[call.micro] : hidden, records ? &saved_[place] : nullptr);
    if (leaves) on_host_[place].leave(*place_.device, *made, *layer.tape(saved_[place]));
    leave_unit(*place_.engine, chunk.units[unit], false);
    channel_.progress();
  }
  place_.engine->records = !mode_.forward_only;  // a backward that computes a forward again records it
  if (!chunk.last)
    chunk.layers.back()->transports().output->send(channel_, hidden, rank_of(chunk.stage + 1),
                                                   {chunk.stage + 1, action.micro, true});
}

// B computes each unit's weight gradients right after its input gradient, while the data is in cache; I defers them to W. Units
// before the first trained unit have no backward, and no stage receives gradients for them.
template <class Exec>
void Executor<Exec>::backward(const Action& action, bool whole) {
  Chunk<Exec>& chunk = *chunks_[action.chunk];
  const UnitCall call = call_of(std::size_t(action.micro));
  if (whole) ++done_[action.chunk];
  AnyValue gradient;
  if (chunk.last) gradient = AnyValue(Seed(seed_));
  else if (chunk.receives_gradients())
    gradient = chunk.layers.back()->transports().output_gradient->receive(channel_, rank_of(chunk.stage + 1),
                                                                          {chunk.stage, action.micro, false});
  if (recording_) recording_->start();
  for (std::size_t unit = chunk.layers.size(); unit-- > 0;) {
    const std::size_t place = place_of(action) + unit;
    const trace::Region region([&] { return chunk.units[unit].name; });
    if (chunk.backwards[unit].runs) {
      enter_unit(*place_.engine, chunk.units[unit], true);
      if (chunk.calls && whole) chunk.calls->reduce_early(accumulator_, last(action.chunk));
      accumulator_.open(chunk.units[unit], call.micro);
      if (chunk.on_host[unit]) on_host_[place].arrive(*place_.device);
      if (unit > 0 && chunk.on_host[unit - 1]) on_host_[place - 1].fetch(*place_.device);  // behind this unit's backward
      chunk.layers[unit]->backward(call, gradient, saved_[place], whole ? nullptr : &deferred_[place]);
      close(chunk.units[unit], action.micro, whole);
      leave_unit(*place_.engine, chunk.units[unit], true);
    }
    if (whole) chunk.ready(unit, accumulator_, place_.engine->hooks, last(action.chunk));
    channel_.progress();
  }
  if (!chunk.first && chunk.sends_gradients())
    chunk.layers.front()->transports().input_gradient->send(channel_, gradient, rank_of(chunk.stage - 1),
                                                            {chunk.stage - 1, action.micro, false});
}

template <class Exec>
void Executor<Exec>::weight(const Action& action) {
  Chunk<Exec>& chunk = *chunks_[action.chunk];
  const UnitCall call = call_of(std::size_t(action.micro));
  ++done_[action.chunk];
  for (std::size_t unit = chunk.layers.size(); unit-- > 0;) {
    const trace::Region region([&] { return chunk.units[unit].name; });
    if (chunk.backwards[unit].runs) {
      // The head computes its logits again.
      const bool reads_values = chunk.last && unit + 1 == chunk.layers.size() && place_.engine->loss_chunks > 1;
      if (reads_values) enter_unit(*place_.engine, chunk.units[unit], true);
      accumulator_.open(chunk.units[unit], call.micro);
      chunk.layers[unit]->backward_weight(call, deferred_[place_of(action) + unit]);
      close(chunk.units[unit], action.micro, true);
      if (reads_values) leave_unit(*place_.engine, chunk.units[unit], true);
    }
    chunk.ready(unit, accumulator_, place_.engine->hooks, last(action.chunk));
  }
}

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class Executor<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft::detail
#endif
