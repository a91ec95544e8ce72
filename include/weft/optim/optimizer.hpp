// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part that all optimizers share: the global gradient norm, clipping, and the decision to skip a step, which is the same on
// every rank. A Rule (AdamW, Sgd) has the update itself.
//
//   optim::Optimizer<SignRule> optimizer(model, {.learning_rate = 1e-4});   // SignRule: optim/update_rule.hpp
//   optimizer.step();

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/model_kind.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/comm/stragglers.hpp>
#include <weft/core/fields.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/engine/loss_scale.hpp>
#include <weft/engine/plain_accumulator.hpp>
#include <weft/engine/step_gradients.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/squared_norm.hpp>
#include <weft/kernels/update_elements.hpp>
#include <weft/optim/element_update.hpp>
#include <weft/optim/groups.hpp>
#include <weft/optim/matrix_exchange.hpp>
#include <weft/optim/offloaded.hpp>
#include <weft/optim/rule_parts.hpp>
#include <weft/optim/slot.hpp>
#include <weft/optim/trainable.hpp>
#include <weft/optim/update_rule.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::optim {

/// The report of a step, the same on every rank.
struct StepReport {
  double gradient_norm = 0;  ///< before clipping, over all elements of the model
  /// A gradient was not finite: parameters and optimizer state are bitwise unchanged, and a loss scale is reduced.
  bool skipped = false;
};

/// An optimizer with the update of Rule (an UpdateRule). The rule has `Options` with learning_rate and clip, and groups if
/// parameters can have separate options; `static constexpr buffers`; optionally `check(options)` for its other options; and one
/// declaration of the elements on which the update of an element depends:
///
/// - `static constexpr bool elementwise = true`: only on that element (AdamW, SGD). Ranks may hold any pieces.
/// - `static constexpr Needs needs = Needs::rows` (or Needs::matrix): on its row, or on the whole parameter (Muon, LAMB). weft
///   gathers them for every division among ranks (MatrixExchange), and the results have the bits of one rank if the gradients
///   have them.
/// - neither: unknown. Throws UsageError if ranks hold pieces.
///
/// An elementwise rule has `element<A>(state, options, learning_rate, step)`, the arithmetic of an element, or, like a rule
/// without a declaration, `update<P>(device, slot, options, learning_rate, gradient_scale, step)`. A rule with `needs` has three
/// parts, see optim/update_rule.hpp. Offloaded state is only updated element by element.
///
/// A parameter whose gradient no micro-batch of any rank added to in a step is unchanged by it: no decay, no change of its
/// moments, as in PyTorch if grad is None. This holds for every wrapper and stage of ZeRO. Adam's bias correction counts the
/// optimizer's steps, not those in which a parameter took part.
///
/// A frozen parameter (model.freeze) has no buffers and no decay, and is not in the norm. Its state is dropped at the next step,
/// and created again with a new step count once it is trained again.
///
/// The next update starts from a value written to ParameterState::value() between steps, even if there is a master copy: a value
/// that is not the copy's rounding was written by the program. Moments are unchanged. In stage 3 of ZeRO the value is the master
/// copy.
template <class Rule>
class Optimizer {
 public:
  using Options = typename Rule::Options;
  using Exec = DefaultDevice::execution_space;

  /// An optimizer of this rank's parameters of `model` (a wrapper, or SingleDevice), which must outlive the optimizer. Throws
  /// UsageError if another optimizer updates one of the trainable parameters. Parameters that are frozen now may belong to
  /// another optimizer.
  template <Trainable Model>
  explicit Optimizer(Model& model, const Options& options = {})
      : options_(options), grouped_(options), communicator_(model.communicator()), device_(&model.device()) {
    const comm::InFunction mark(communicator_, comm::ProgramFunction::optimizer);
    static_assert(
        detail::says_needs<Rule> || !always_sharded<Model>,
        "weft: this optimizer's rule is not elementwise: its update needs whole parameters, and FullyShardedDataParallel leaves "
        "a rank pieces of them; use DataParallel, or declare the rule's needs: `static constexpr bool elementwise = true`, as "
        "AdamW's, or Needs::matrix, as Muon's");
    weft::detail::hash_value(options_hash_, options);
    for (const Options& each : grouped_.options) {
      require_option("learning rate", each.learning_rate);
      if constexpr (requires { Rule::check(each); }) Rule::check(each);
    }
    for (const double ratio : grouped_.ratios) require_option("a group's learning rate divided by the optimizer's,", ratio);
    if (!std::isfinite(options.clip))
      throw_error<UsageError>({"clip ", std::to_string(options.clip), " is not a finite number; 0 turns clipping off"});
    if (options.clip < 0) throw_error<UsageError>({"clip ", std::to_string(options.clip), " is negative; 0 turns clipping off"});
    require_option("ema_decay", ema_decay(), 1);
    using P = weft::detail::computed_t<typename Model::model_type::scalar>;
    if constexpr (detail::is_served<Rule>) {
      if constexpr (Transforms<Rule, P, Exec>) parts_ = detail::parts_of<Rule, P, Exec>();
      else detail::refuse_parts<Rule, P, Exec>();
    }
    if constexpr (detail::has_elements<Rule>) {
      if constexpr (detail::has_update<Rule>() ? UpdatesSlots<Rule, P, Exec> : UpdatesElements<Rule, P>)
        elements_ = detail::element_updates<Rule, P, Exec>();
      else detail::refuse_update<Rule, P, Exec>();
    }
    squared_norm_ = [](Device<Exec>& device, const void* gradient, const weft::detail::Run& run, double* out) {
      kernels::squared_norm(device, run.length, static_cast<const accumulate_t<P>*>(gradient) + run.local, out);
    };
    squared_norms_ = [](Device<Exec>& device, std::span<const weft::detail::GradientPart> parts, double* out) {
      std::vector<kernels::NormPart<accumulate_t<P>>> all;
      for (const auto& part : parts) {
        if (part.state->kept_gradient_type() != part.state->gradient_type()) return false;  // it needs separate memory
        all.push_back({static_cast<const accumulate_t<P>*>(part.state->gradient().get()) + part.run.local, part.run.length});
      }
      kernels::squared_norms<accumulate_t<P>>(device, all, out);
      return true;
    };
    if constexpr (requires { options.ema_decay; }) average_ = &detail::average_values<accumulate_t<P>, Exec>;
    if constexpr (!std::is_same_v<P, accumulate_t<P>>)
      widen_ = [](Device<Exec>& device, std::size_t n, const void* from, void* to) {
        kernels::cast<P, accumulate_t<P>>(device, n, static_cast<const P*>(from), static_cast<accumulate_t<P>*>(to));
      };
    if constexpr (requires { model.stages().gradients(); }) {
      gradients_ = weft::detail::register_optimizer(model.stages().gradients());
      used_ = gradients_->used();
      gradients_->applied = true;  // losing earlier gradients is allowed
    }
    if constexpr (requires { model.stages().axes(); }) stage_ = std::uint32_t(model.stages().axes().rank(pp{}));
    if constexpr (requires { model.loss_scale(); }) loss_scale_ = model.loss_scale();
    if constexpr (requires { model.stages().accumulator(); }) accumulator_ = model.stages().accumulator();
    else accumulator_ = std::make_shared<weft::detail::PlainAccumulator<Exec>>(*device_);
    if constexpr (requires { model.options().shard.offload; }) {
      store_ = model.options().shard.offload.store;
      offload_ = model.options().shard.offload.optimizer;
      if (store_ && ema_decay() > 0)
        throw_error<UsageError>(
            {"ema_decay: the optimizer's state is offloaded (ModelOptions::shard.offload), and averages are used "
             "on the device: leave one of the two out"});
    }
    if constexpr (requires {
                    model.require_equal_parameters();
                    model.options().numerics.compare_every;
                  }) {
      compare_every_ = model.options().numerics.compare_every;
      compare_ = [](void* of) { static_cast<Model*>(of)->require_equal_parameters(); };
      model_ = &model;
    }
    require_groups(model);
    make_ = [](Optimizer& self, ParameterState& state) { return self.template make_slot<P>(state); };
    model.for_each_state([&](ParameterState& state) {
      if constexpr (!detail::says_needs<Rule>) {
        if (state.storage().sharder())
          throw_error<UsageError>({"this optimizer's rule is not elementwise and ", state.name(),
                                   " is sharded over data ranks: use ModelOptions::shard.stage 0, or an elementwise rule"});
        require_whole(state);
      }
      bool inner = true;
      if constexpr (requires { model.stages().inner(state); }) inner = model.stages().inner(state);
      Slot slot = Slot::without_state(state);
      slot.group = grouped_.of(state.name());
      slot.whole = takes_whole(slot, inner);
      slots_.push_back(std::move(slot));
    });
    if constexpr (detail::is_served<Rule>) {
      if constexpr (requires { model.grids(); }) serve(model.grids());
      else serve({});  // one rank
    }
    for (Slot& slot : slots_)
      if (slot.state->trainable()) {
        if (!slot.state->is_free_for(token_)) detail::refuse_second(slot.state->name());
        make_state(slot);
      }
    if (store_) store_->commit();
  }
  /// Refuses a learning rate that is passed without its name.
  template <class Model, class A>
  requires std::is_arithmetic_v<A> Optimizer(Model&, const A&) : grouped_(Options{}) {
    static_assert(sizeof(A) == 0,
                  "weft: an optimizer's second argument is its options, each with its name: optim::AdamW optimizer(model, "
                  "{.learning_rate = 1e-3}), in the order of the fields");
  }
  /// Refuses a learning rate in the place of the model.
  template <class A>
  requires std::is_arithmetic_v<A>  // a temporary number
  explicit Optimizer(A&&, const Options& = {}) : grouped_(Options{}) {
    static_assert(sizeof(A) == 0,
                  "weft: an optimizer's first argument is its model: optim::AdamW optimizer(model, {.learning_rate = 1e-3})");
  }
  /// Refuses options with other frameworks' names.
  template <class Model>
  Optimizer(Model&, const detail::OptionsElsewhere&) : grouped_(Options{}) {
    static_assert(
        sizeof(Model) == 0,
        "weft: an optimizer's learning rate is .learning_rate, AdamW's further options are .beta1, .beta2, .epsilon and "
        ".weight_decay: optim::AdamW optimizer(model, {.learning_rate = 1e-3}), in the order of the fields");
  }
  /// Reports why the argument is no model that an optimizer can update.
  template <class Other>
  requires(!Trainable<Other>) explicit Optimizer(Other&, const Options& options = {}) : grouped_(options) {
    constexpr bool frozen = Trainable<std::remove_const_t<Other>>, module = std::is_base_of_v<Module<Other>, Other>;
    if constexpr (module) weft::detail::refuse_bare_model<Other>();
    static_assert(!frozen, "weft: an optimizer changes the model's parameters, and this model is const: give it one that is not");
    static_assert(
        frozen || module,
        "weft: an optimizer updates a model that is laid over ranks, which is Trainable: SingleDevice<M> model(world.device(), "
        "config), or a wrapper, such as DataParallel<M> model(mesh, config); a recipe (models::Gpt) or a layer alone is not");
  }

  StepReport step() { return step(options_.learning_rate); }
  /// Applies the gradients of the last train_step. Clipping (options.clip > 0) scales all of them by min(1, clip / (norm +
  /// 1e-6)), as torch.nn.utils.clip_grad_norm_ does. Collective over the whole mesh. Throws UsageError if there are no gradients
  /// left to apply, and for a learning rate that is not a number of at least 0. Throws StorageError on every rank if a rank's
  /// file (ModelOptions::shard.offload) fails; parameters and state are then unchanged. Throws Error if
  /// ModelOptions::numerics.compare_every finds different parameters on ranks that must have equal ones.
  StepReport step(double learning_rate);
  /// The ranks whose part of train_step takes longer than that of other ranks of their stage (comm/stragglers.hpp), on hosts, as
  /// of the last step; the same on every rank.
  const std::vector<comm::Straggler>& slow_ranks() const { return stragglers_.slow(); }

  /// The 2-norm over all elements of the model, each logical element once, summed in double (NaN or infinity if any gradient of
  /// any rank is). The loss scale is divided out. Collective over the whole mesh. Returns the same bits on every rank, and under
  /// ModelOptions::numerics.reproducible in every layout with the same gradients.
  double gradient_norm();

  /// Sets the master copies to the 16-bit values, for weights that were loaded from elsewhere; this loses the copies' additional
  /// digits. The next step uses a value that a program writes even without this call, unless the value equals the rounding of its
  /// master. No effect in float and double, in stage 3 of ZeRO, which keeps only the master, and for offloaded state.
  void refresh();

  /// Number of steps applied; skipped steps are not counted.
  std::uint64_t steps() const { return steps_; }
  const Options& options() const { return options_; }
  const std::vector<Slot>& slots() const { return slots_; }
  /// The decay of the parameters' averages (optim/ema.hpp); 0: there are none.
  double ema_decay() const {
    if constexpr (requires { options_.ema_decay; }) return options_.ema_decay;
    else return 0;
  }

  // ---- for checkpoints, which write to the slots' buffers
  std::vector<Slot>& slots() { return slots_; }
  /// Makes state for parameters that have become trainable, and drops that of frozen ones, as the next step would.
  void follow_trainable();
  /// Restores the number of applied steps from a checkpoint.
  void restore(std::uint64_t steps) { steps_ = steps; }

 private:
  // The parts of the norm, and their sum.
  std::vector<weft::detail::GradientPart> norm_parts() const;
  weft::detail::SquaredNorm square();

  template <class Model>
  WEFT_COLD void require_groups(Model& model) {
    std::vector<std::string> names;
    if (grouped_.groups.empty()) return;
    if constexpr (requires { model.parameter_names(); }) names = model.parameter_names();
    else model.for_each_state([&](const ParameterState& state) { names.push_back(state.name()); });
    grouped_.require_matches(communicator_, names);
  }
  // True if the rule transforms this parameter as a whole matrix.
  WEFT_COLD bool takes_whole(const Slot& slot, bool inner) const;
  // Plans the exchange of the parameters that are gathered; `grids`: the order of ranks.
  WEFT_COLD void serve(const mesh_layout::RankGrids& grids);
  // The step of the gathered parameters. Collective.
  void step_whole(double learning_rate, double scale);
  // True if the slot should have state: its parameter is trainable, and no other optimizer has it.
  bool wants_state(const Slot& slot) const { return slot.state->trainable() && slot.state->is_free_for(token_); }
  // Throws UsageError if there is no new gradient. `own_loop`: a user-written training loop has just completed one.
  WEFT_COLD void require_gradients(bool own_loop) const;
  WEFT_COLD void make_state(Slot& slot);
  WEFT_COLD void make_home(Slot& slot);
  WEFT_COLD void prove_home(weft::detail::Proof& proof);  // notes the arrays that this rank is the home of
  WEFT_COLD static Slot without_state(const Slot& slot);

  // Throws UsageError if ranks would update their pieces of one model with different options or step counts.
  WEFT_COLD void require_same_step(double learning_rate);

  template <class Model>
  static constexpr bool always_sharded = [] {
    if constexpr (requires { Model::shards_parameters; }) return bool(Model::shards_parameters);
    else return false;
  }();

  // Refuses pieces that tp, etp or cp leave on a rank: they have the shape of a matrix but are not whole.
  WEFT_COLD static void require_whole(const ParameterState& state);

  weft::detail::Buffer wide_gradient(const ParameterState& state);
  struct Call {
    Optimizer* optimizer;
    double learning_rate, scale;
  };
  // Updates a slot in the types of the rule, independent of the stored types.
  void update(Slot& slot, double learning_rate, const kernels::GradientScale& scale);
  // Moves the average of a slot towards its updated parameter. The optimizer's first step copies the parameter.
  void average(Slot& slot) { average_(*device_, slot, steps_ == 0 ? 1 : 1 - ema_decay()); }
  void update_due(double learning_rate, const kernels::GradientScale& scale);
  // On a device that can update before the host has the norm: updates all slots unless the norm is not finite, and returns the
  // norm. Otherwise does nothing and returns nothing. Collective.
  std::optional<double> update_behind_norm(double learning_rate);

  template <class P>
  WEFT_COLD Slot make_slot(ParameterState& state) {
    using A = accumulate_t<P>;
    Slot slot = Slot::without_state(state);
    slot.made = true;
    slot.begun = steps_;
    const std::size_t size = state.kept();
    if (size == 0) return slot;
    if (widen_ != nullptr && state.kept_type() == state.type()) {
      weft::detail::Buffer value = state.value();
      if (state.storage().store())
        weft::detail::read_record(*device_, *state.storage().store(), state.storage().record(),
                                  (value = device_->allocate(size * sizeof(P))).get(), size * sizeof(P));
      slot.master = store_ ? device_->allocate(size * sizeof(A))
                           : device_->allocate_persistent(size * sizeof(A), MemoryCategory::optimizer_state);
      widen_(*device_, size, value.get(), slot.master.get());
    }
    slot.kept.resize(buffers_of(state) + (ema_decay() > 0 ? 1 : 0));
    if (store_) {
      offload_->keep(*device_, *store_, slot);
      return slot;
    }
    for (weft::detail::Buffer& kept : slot.kept) {
      kept = device_->allocate_persistent(size * sizeof(A), MemoryCategory::optimizer_state);
      kernels::fill(*device_, size, static_cast<A*>(kept.get()), A(0));
    }
    if (ema_decay() > 0 && steps_ != 0) average_(*device_, slot, 1);  // trained from now on: the average was the parameter
    return slot;
  }

  std::size_t buffers_of(const ParameterState& state) const {
    bool whole = false;
    for (const Slot& slot : slots_) whole = whole || (slot.state == &state && slot.whole);
    return detail::rule_buffers<Rule>(whole);
  }

  Options options_;
  detail::GroupedOptions<Options> grouped_;
  std::uint64_t options_hash_ = 0;
  Communicator communicator_;
  DefaultDevice* device_;
  // Functions for the model's element type, chosen when the optimizer is created, so that only one is compiled.
  detail::ElementUpdates<Options, Exec> elements_ = {};
  void (*squared_norm_)(Device<Exec>&, const void*, const weft::detail::Run&, double*);
  Slot (*make_)(Optimizer&, ParameterState&);
  detail::Parts<Options, Exec> parts_ = {};
  std::optional<detail::MatrixExchange> exchange_;  // of the slots in `served_`
  std::vector<std::size_t> served_;
  bool (*squared_norms_)(Device<Exec>&, std::span<const weft::detail::GradientPart>, double*);
  void (*average_)(Device<Exec>&, Slot&, double) = nullptr;
  void (*widen_)(Device<Exec>&, std::size_t, const void*, void*) = nullptr;  // converts from the model's type, if it has 16 bits
  std::shared_ptr<weft::detail::GradientAccumulator> accumulator_;
  std::shared_ptr<weft::detail::StepGradients> gradients_;  // null: the model does not report gradients
  std::shared_ptr<LossScale> loss_scale_;                   // null: gradients are not scaled
  std::shared_ptr<weft::detail::Store> store_;
  const OffloadParts* offload_ = nullptr;
  std::vector<Slot> slots_;
  std::uint64_t steps_ = 0;
  comm::Stragglers stragglers_;                                       // among the ranks of each stage
  std::uint32_t stage_ = 0;                                           // this rank's
  std::uint64_t used_ = 0;                                            // the step whose gradients the last step() applied
  std::shared_ptr<const char> token_ = std::make_shared<char>('\0');  // identifies this optimizer to its parameters
  std::uint64_t compare_every_ = 0;                                   // ModelOptions::numerics.compare_every
  void (*compare_)(void*) = nullptr;                                  // calls require_equal_parameters
  void* model_ = nullptr;                                             // the argument of compare_
};

template <class Rule>
void Optimizer<Rule>::refresh() {
  for (Slot& slot : slots_)
    if (slot.master && slot.state->value() && slot.state->kept_type() == slot.state->type())
      widen_(*device_, slot.state->kept(), slot.state->value().get(), slot.master.get());
}

}  // namespace weft::optim

#include <weft/optim/refused_optimizer.hpp>
#include <weft/optim/step.hpp>
#include <weft/optim/step_agreement.hpp>
#include <weft/optim/whole_step.hpp>
