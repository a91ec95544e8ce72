// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part that all optimizers share: the global gradient norm, clipping, and the decision to skip a step, the same on every
// rank. The update itself is a Rule (AdamW, Sgd).
//
//   optim::Optimizer<SignRule> optimizer(model, {.learning_rate = 1e-4});   // SignRule: optim/update_rule.hpp
//   optimizer.step();

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/comm/agreement.hpp>
#include <weft/core/fields.hpp>
#include <weft/core/text.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/optimizer.hpp>
#include <weft/layer/hooks.hpp>
#include <weft/layer/loss_scale.hpp>
#include <weft/layer/plain_accumulator.hpp>
#include <weft/optim/offloaded.hpp>
#include <weft/optim/slot.hpp>
#include <weft/optim/update_rule.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::optim {

/// The report of a step, the same on every rank.
struct StepReport {
  double gradient_norm = 0;  ///< before clipping, over all elements of the model
  /// A gradient was not finite: parameters and optimizer state are bitwise unchanged, a loss scale backs off.
  bool skipped = false;
};

/// Throws UsageError for an option that is not in [0, end).
WEFT_COLD inline void require_option(std::string_view name, double value, double end = std::numeric_limits<double>::infinity()) {
  if (value >= 0 && value < end) return;
  throw_error<UsageError>({name, " ", std::to_string(value), " is not a number of at least 0", end == 1 ? " and below 1" : ""});
}

/// A model that an optimizer can update: in a wrapper, or SingleDevice<Model>. A model type alone is only a set of factories.
template <class M>
concept Trainable = !std::is_const_v<M> && requires(M & model) {
  typename M::model_type;
  model.communicator();
  model.device();
};

/// An optimizer with the update of Rule (an UpdateRule): `Options` with learning_rate and clip, `static constexpr buffers`,
/// `update<P>(device, slot, options, learning_rate, gradient_scale, step)`, optionally `check(options)` for options of its own,
/// and `static constexpr bool elementwise`: true if the update of an element needs no other element of the parameter (AdamW,
/// SGD), so that ranks may hold pieces of it. A rule without `elementwise` is assumed to need whole parameters (a factored second
/// moment, an orthogonalised momentum) and is refused if ranks hold pieces: UsageError.
///
/// A parameter to whose gradient no micro-batch of any rank added in a step is unchanged by it: no decay, no change of its
/// moments, as in PyTorch if grad is None, with every wrapper and stage of ZeRO. Adam's bias correction counts the optimizer's
/// steps, not those in which a parameter took part.
///
/// A value written to ParameterState::value() between steps is the one that the next update starts from, also beside a master
/// copy: a value that is not the copy's rounding was written. Moments stay as they are. In stage 3 of ZeRO the value is the
/// master copy.
template <class Rule>
class Optimizer {
 public:
  using Options = typename Rule::Options;
  using Exec = DefaultDevice::execution_space;

  /// An optimizer of this rank's parameters of `model` (a wrapper, or SingleDevice), which must outlive the optimizer.
  template <Trainable Model>
  explicit Optimizer(Model& model, const Options& options = {})
      : options_(options), communicator_(model.communicator()), device_(&model.device()) {
    static_assert(
        elementwise || !always_sharded<Model>,
        "weft: this optimizer's rule is not elementwise: its update needs whole parameters, and FullyShardedDataParallel leaves "
        "a rank pieces of them; use DataParallel, or a rule with `static constexpr bool elementwise = true`, such as AdamW's");
    require_option("learning rate", options.learning_rate);
    weft::detail::hash_value(options_hash_, options);
    if constexpr (requires { Rule::check(options); }) Rule::check(options);
    if (options.clip < 0) throw_error<UsageError>({"clip ", std::to_string(options.clip), " is negative; 0 turns clipping off"});
    using P = typename Model::model_type::scalar;
    if constexpr (Updates<Rule, P, Exec>) update_ = &Rule::template update<P, Exec>;
    else detail::refuse_update<Rule, P, Exec>();
    squared_norm_ = [](Device<Exec>& device, const void* gradient, const weft::detail::Run& run, double* out) {
      kernels::squared_norm(device, run.length, static_cast<const accumulate_t<P>*>(gradient) + run.local, out);
    };
    squared_norms_ = [](Device<Exec>& device, std::span<const weft::detail::GradientPart> parts, double* out) {
      std::vector<kernels::NormPart<accumulate_t<P>>> all;
      for (const auto& part : parts) {
        if (part.state->kept_gradient_type() != part.state->gradient_type()) return false;  // needs memory of its own
        all.push_back({static_cast<const accumulate_t<P>*>(part.state->gradient().get()) + part.run.local, part.run.length});
      }
      kernels::squared_norms<accumulate_t<P>>(device, all, out);
      return true;
    };
    if constexpr (!std::is_same_v<P, accumulate_t<P>>)
      widen_ = [](Device<Exec>& device, std::size_t n, const void* from, void* to) {
        kernels::cast<P, accumulate_t<P>>(device, n, static_cast<const P*>(from), static_cast<accumulate_t<P>*>(to));
      };
    if constexpr (requires { model.stages().gradients(); }) {
      gradients_ = model.stages().gradients();
      gradients_->applied = true;  // earlier gradients are not applied
    }
    if constexpr (requires { model.loss_scale(); }) loss_scale_ = model.loss_scale();
    if constexpr (requires { model.stages().accumulator(); }) accumulator_ = model.stages().accumulator();
    else accumulator_ = std::make_shared<weft::detail::PlainAccumulator<Exec>>(*device_);
    if constexpr (requires { model.options().shard.offload; }) {
      store_ = model.options().shard.offload.store;
      offload_ = model.options().shard.offload.optimizer;
    }
    if constexpr (requires {
                    model.require_equal_parameters();
                    model.options().numerics.compare_every;
                  }) {
      compare_every_ = model.options().numerics.compare_every;
      compare_ = [](void* of) { static_cast<Model*>(of)->require_equal_parameters(); };
      model_ = &model;
    }
    model.for_each_state([this](ParameterState& state) {
      if (!elementwise && state.storage().sharder())
        throw_error<UsageError>({"this optimizer's rule is not elementwise and ", state.name(),
                                 " is sharded over data ranks: use ModelOptions::shard.stage 0, or an elementwise rule"});
      if constexpr (!elementwise) require_whole(state);
      slots_.push_back(make_slot<P>(state));
    });
    if (store_) store_->commit();
  }
  /// Prints why the argument is no model that an optimizer can update.
  template <class Other>
  requires(!Trainable<Other>) explicit Optimizer(Other&, const Options& = {}) {
    constexpr bool frozen = Trainable<std::remove_const_t<Other>>;
    static_assert(!frozen, "weft: an optimizer changes the model's parameters, and this model is const: give it one that is not");
    static_assert(
        frozen,
        "weft: an optimizer updates a model that is laid over ranks, which is Trainable: SingleDevice<M> model(world.device(), "
        "config), or a wrapper, such as DataParallel<M> model(mesh, config); a recipe (models::Gpt) or a layer alone is not");
  }

  StepReport step() { return step(options_.learning_rate); }
  /// Applies the gradients of the last train_step. Clipping (options.clip > 0) scales all of them by min(1, clip / (norm +
  /// 1e-6)), as torch.nn.utils.clip_grad_norm_ does. Collective over the whole mesh. Throws UsageError before any train_step;
  /// StorageError on every rank if a file of one of them (ModelOptions::shard.offload) fails: parameters and state are then
  /// unchanged; Error if ModelOptions::numerics.compare_every finds ranks with different parameters that must be equal.
  StepReport step(double learning_rate);

  /// The 2-norm over all elements of the model, each logical element once, summed in double (NaN or infinity if any gradient of
  /// any rank is). Collective over the whole mesh; the same bits on every rank, and under ModelOptions::numerics.reproducible in
  /// every layout with the same gradients. The loss scale is divided out.
  double gradient_norm();

  /// Sets the master copies to the 16-bit values, without the digits that these have lost: for weights that were loaded from
  /// elsewhere. A value that a program writes is used in the next step without this call, unless it equals the rounding of its
  /// master. No effect in float and double, in stage 3 of ZeRO, which keeps the master alone, and for offloaded state.
  void refresh();

  /// Steps applied so far; skipped ones do not count.
  std::uint64_t steps() const { return steps_; }
  const std::vector<Slot>& slots() const { return slots_; }

 private:
  // The norm of the gradients including the loss scale.
  double scaled_norm();

  // Throws UsageError if ranks would update their pieces of one model with different options or steps.
  WEFT_COLD void require_same_step(double learning_rate);

  static constexpr bool elementwise = [] {
    if constexpr (requires { Rule::elementwise; }) return bool(Rule::elementwise);
    else return false;
  }();
  template <class Model>
  static constexpr bool always_sharded = [] {
    if constexpr (requires { Model::shards_parameters; }) return bool(Model::shards_parameters);
    else return false;
  }();

  // Refuses pieces that tp, etp or cp leave on a rank: they have the shape of a matrix but are not the whole one.
  WEFT_COLD static void require_whole(const ParameterState& state);

  weft::detail::Buffer wide_gradient(const ParameterState& state);
  struct Call {
    Optimizer* optimizer;
    double learning_rate, scale;
  };
  // Updates a slot in the types of the rule, whatever types a rank keeps.
  void update(Slot& slot, double learning_rate, double scale);

  template <class P>
  WEFT_COLD Slot make_slot(ParameterState& state) {
    using A = accumulate_t<P>;
    Slot slot{&state, nullptr, {}, {}};
    const std::size_t size = state.kept();
    if (size == 0) return slot;
    if (widen_ != nullptr && state.kept_type() == state.type()) {
      weft::detail::Buffer value = state.value();
      if (state.storage().store())
        weft::detail::read_record(*device_, *state.storage().store(), state.storage().record(),
                                  (value = device_->allocate(size * sizeof(P))).get(), size * sizeof(P));
      slot.master = store_ ? device_->allocate(size * sizeof(A)) : device_->allocate_persistent(size * sizeof(A));
      widen_(*device_, size, value.get(), slot.master.get());
    }
    slot.kept.resize(Rule::buffers);
    if (store_) {
      offload_->keep(*device_, *store_, slot);
      return slot;
    }
    for (weft::detail::Buffer& kept : slot.kept) {
      kept = device_->allocate_persistent(size * sizeof(A));
      kernels::fill(*device_, size, static_cast<A*>(kept.get()), A(0));
    }
    return slot;
  }

  Options options_;
  std::uint64_t options_hash_ = 0;
  Communicator communicator_;
  DefaultDevice* device_;
  // Functions for the model's element type, which is known where the optimizer is made, so that only one is compiled.
  void (*update_)(Device<Exec>&, Slot&, const Options&, double, double, std::uint64_t);
  void (*squared_norm_)(Device<Exec>&, const void*, const weft::detail::Run&, double*);
  bool (*squared_norms_)(Device<Exec>&, std::span<const weft::detail::GradientPart>, double*);
  void (*widen_)(Device<Exec>&, std::size_t, const void*, void*) = nullptr;  // from the model's type, if it has 16 bits
  std::shared_ptr<weft::detail::GradientAccumulator> accumulator_;
  std::shared_ptr<weft::detail::StepGradients> gradients_;  // null: the model does not report it
  std::shared_ptr<LossScale> loss_scale_;                   // null: gradients are not scaled
  std::shared_ptr<weft::detail::Store> store_;
  const OffloadParts* offload_ = nullptr;
  std::vector<Slot> slots_;
  std::uint64_t steps_ = 0;
  std::uint64_t compare_every_ = 0;   // ModelOptions::numerics.compare_every, of
  void (*compare_)(void*) = nullptr;  // require_equal_parameters of
  void* model_ = nullptr;             // the model
};

template <class Rule>
StepReport Optimizer<Rule>::step(double learning_rate) {
  for (const Slot& slot : slots_)
    if (!slot.state->gradient() && slot.due())
      throw_error<UsageError>({"optimizer step before any train_step: ", slot.state->name(), " has no gradient"});
  if (gradients_) gradients_->applied = true;
  require_same_step(learning_rate);
  StepReport report;
  const double unscale = loss_scale_ ? 1 / loss_scale_->applied() : 1;
  report.gradient_norm = gradient_norm();
  report.skipped = !std::isfinite(report.gradient_norm);
  if (report.skipped) {
    if (loss_scale_) loss_scale_->update(true);
    return report;
  }
  const double scale = unscale * (options_.clip > 0 ? std::min(1.0, options_.clip / (report.gradient_norm + 1e-6)) : 1.0);
  if (store_) {
    const auto apply = [](const void* call, Slot& slot) {
      const auto& [optimizer, rate, factor] = *static_cast<const Call*>(call);
      optimizer->update(slot, rate, factor);
    };
    const Call call{this, learning_rate, scale};
    offload_->update(*device_, *store_, communicator_, slots_, apply, &call);
  } else {
    for (Slot& slot : slots_)
      if (slot.due()) update(slot, learning_rate, scale);
  }
  ++steps_;
  if (loss_scale_) loss_scale_->update(false);
  if (compare_every_ != 0 && (steps_ == 1 || steps_ % compare_every_ == 0)) compare_(model_);
  return report;
}

template <class Rule>
double Optimizer<Rule>::gradient_norm() {
  return scaled_norm() / (loss_scale_ ? loss_scale_->applied() : 1);
}

template <class Rule>
void Optimizer<Rule>::refresh() {
  for (Slot& slot : slots_)
    if (slot.master && slot.state->value() && slot.state->kept_type() == slot.state->type())
      widen_(*device_, slot.state->kept(), slot.state->value().get(), slot.master.get());
}

template <class Rule>
double Optimizer<Rule>::scaled_norm() {
  std::vector<weft::detail::GradientPart> parts;
  for (const Slot& slot : slots_) {
    if (!slot.state->gradient() || !slot.state->gradients().touched()) continue;
    if (slot.state->info().replicas == 1) parts.push_back({slot.state, {0, 0, slot.state->kept()}, slot.state->counted()});
    else
      for (const weft::detail::Run& run : slot.state->runs())
        parts.push_back({slot.state, run, slot.state->counted() && run.owned});
  }
  return accumulator_->norm(communicator_, parts,
                            {this,
                             [](void* optimizer, const weft::detail::GradientPart& part, double* out) {
                               Optimizer& self = *static_cast<Optimizer*>(optimizer);
                               self.squared_norm_(*self.device_, self.wide_gradient(*part.state).get(), part.run, out);
                             },
                             [](void* optimizer, std::span<const weft::detail::GradientPart> parts, double* out) {
                               Optimizer& self = *static_cast<Optimizer*>(optimizer);
                               return self.squared_norms_(*self.device_, parts, out);
                             }});
}

template <class Rule>
void Optimizer<Rule>::require_same_step(double learning_rate) {
  if (communicator_.size() == 1) return;
  const std::uint64_t words[] = {options_hash_, std::bit_cast<std::uint64_t>(learning_rate), steps_};
  if (weft::detail::same_on_all(communicator_, words)) return;
  const auto found = weft::detail::first_difference(communicator_, words);
  const std::string what = found.word == 0 ? std::string("options are not the same")
                           : found.word == 1
                               ? weft::detail::joined({"learning rate is ", std::to_string(std::bit_cast<double>(found.on_rank)),
                                                       ", not ", std::to_string(std::bit_cast<double>(found.on_first))})
                               : weft::detail::joined({"number of steps is ", found.on_rank, ", not ", found.on_first});
  throw_error<UsageError>({"optimizer step: rank ", found.rank, "'s ", what,
                           " as on rank 0: all ranks make an optimizer with the same options and take the same steps"});
}

template <class Rule>
void Optimizer<Rule>::require_whole(const ParameterState& state) {
  if (state.local().size() == state.global().size()) return;
  std::string axes;
  const std::pair<unsigned, std::string_view> cutting[] = {{axis_bit<tp>, tp::name},
                                                           {axis_bit<etp>, etp::name},
                                                           {axis_bit<cp>, cp::name},
                                                           {axis_bit<ep>, ep::name},
                                                           {axis_bit<pp>, pp::name}};
  for (const auto& [bit, name] : cutting)
    if (state.sharded() & bit) weft::detail::append_to(axes, {axes.empty() ? "" : " and ", name});
  throw_error<UsageError>({"this optimizer's rule is not elementwise and ", state.name(), " ", state.global().text(),
                           " is cut over ", axes.empty() ? std::string("ranks") : axes, ": this rank holds ",
                           state.local().text(), "; use degree 1 there, or an elementwise rule"});
}

template <class Rule>
weft::detail::Buffer Optimizer<Rule>::wide_gradient(const ParameterState& state) {
  if (state.kept_gradient_type() == state.gradient_type()) return state.gradient();
  weft::detail::Buffer wide = device_->allocate(state.kept() * size_of(state.gradient_type()));
  widen_(*device_, state.kept(), state.gradient().get(), wide.get());
  return wide;
}

template <class Rule>
void Optimizer<Rule>::update(Slot& slot, double learning_rate, double scale) {
  struct Lent {
    Slot& slot;
    weft::detail::Buffer gradient, master;
    Lent(Slot& to, weft::detail::Buffer wide) : slot(to), gradient(to.state->gradients().exchange_buffer(std::move(wide))) {
      if (to.state->kept_type() != to.state->type()) slot.master = master = to.state->storage().exchange_value(nullptr);
    }
    ~Lent() {
      slot.state->gradients().set_buffer(std::move(gradient));
      if (!master) return;
      slot.master.reset();
      slot.state->storage().set_value(std::move(master));
    }
  } lent(slot, wide_gradient(*slot.state));
  update_(*device_, slot, options_, learning_rate, scale, steps_ + 1);
}

/// Replaces an optimizer whose Rule is no rule, and accepts all arguments, so that there is one error.
template <class Rule>
requires(!UpdateRule<Rule>) class Optimizer<Rule> {
 public:
  using Options = typename detail::RuleOptions<Rule>::type;
  template <class Model>
  explicit Optimizer(Model&, const Options& = {}) {
    detail::refuse_rule<Rule>();
  }
  StepReport step() { return {}; }
  StepReport step(double) { return {}; }
  double gradient_norm() { return 0; }
  void refresh() {}
  std::uint64_t steps() const { return 0; }
};

}  // namespace weft::optim
