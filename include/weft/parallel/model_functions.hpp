// SPDX-License-Identifier: Apache-2.0
#pragma once
// The member functions of every model, with and without wrappers: training steps, predictions, decoding, custom training loops,
// and access to parameters by name. Self provides the model: stages(), and context(), in which all its axes are in force.
//
//   class SingleDevice : public detail::ModelFunctions<SingleDevice<M>, M> { ... };

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/model_check.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/data/batch.hpp>
#include <weft/parallel/proof_step.hpp>
#include <weft/parallel/same_inputs.hpp>
#include <weft/parallel/set_parameter.hpp>
#include <weft/parallel/whole_parameter.hpp>
#include <weft/pipeline/decode.hpp>
#include <weft/pipeline/logits.hpp>
#include <weft/pipeline/own_loop.hpp>
#include <weft/pipeline/predictions.hpp>

namespace weft::detail {

template <class Self, class Model>
class ModelFunctions {
 public:
  using model_type = Model;
  using Batch = batch_of_t<Model>;

  /// One step: forward and backward of all micro-batches of this rank's share, gradients summed over every axis. Returns the mean
  /// loss over the tokens of the global batch that count, the same on every rank. Gradients start anew with each call:
  /// micro-batches of one Batch add up, calls do not, so if the model has an optimizer, two calls without its step between them
  /// throw UsageError. Also throws UsageError if ranks of one share (over tp, cp, pp) have different batches, or if the data
  /// ranks' shares are not contiguous in one step's global batch.
  double train_step(const Batch& batch) {
    if (Proof* const proof = self().device().proof(); proof != nullptr) [[unlikely]]
      return proven_step(*proof, self().stages(), batch, [this](const Batch& given) { return train(given); });
    return train(batch);
  }
  /// The mean loss, without dropout and gradients. Ranks of one share have the same batch; dp ranks may have any.
  double evaluate(const Batch& batch) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::evaluate);
    const auto context = in_step(batch);
    require_batches(batch_axes(context), context.env.step, batch, false);
    return self().stages().evaluate(context, batch);
  }
  /// The model's predictions for this batch, without dropout. A Module returns `predict(batch)` if it has one, else its forward
  /// on the first fields. Other models return `predict(x)` of the last unit (with the context first if it is no Module), or a
  /// recipe's logits. Fields that these functions do not read, and a TokenBatch's targets, need no values. Throws UsageError if a
  /// field that they read has none. The result has the samples of this rank's share, equal on all ranks of the share (also under
  /// pp and tp). With Gather::whole it has the global batch on every rank. Pieces of fields that domain axes cut, of any extents,
  /// are gathered; with Gather::piece each rank gets its own, and no rank has a whole field. Throws ShapeError if the ranks'
  /// pieces differ in another dim than the cut one.
  Prediction predict(const Batch& batch, Gather gather = Gather::share) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::predict);
    const auto context = in_step(batch);
    require_batches(batch_axes(context), context.env.step, batch, gather == Gather::whole, BatchUse::inputs);
    return detail::predict(self().stages(), context, batch, gather);
  }
  // Refuses a batch of another type.
  double train_step(const OtherBatch<model_type> auto& batch) { return refuse_batch<model_type>(batch); }
  double evaluate(const OtherBatch<model_type> auto& batch) { return refuse_batch<model_type>(batch); }
  Prediction predict(const OtherBatch<model_type> auto& batch, Gather = Gather::share) {
    return refuse_batch<model_type>(batch), Prediction();
  }
  /// The logits [vocabulary] that follow these tokens, the same on all ranks of one share, which pass the same tokens.
  std::vector<float> next_logits(std::span<const std::int32_t> tokens) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::next_logits);
    const auto context = self().context();
    require_prompt(batch_axes(context), tokens);
    return detail::next_logits(self().stages(), context, tokens);
  }
  /// The logits [tokens, vocabulary] of one sequence, the same on all ranks of one share.
  std::vector<double> logits(std::span<const std::int32_t> tokens) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::logits);
    const auto context = self().context();
    require_prompt(batch_axes(context), tokens);
    return all_logits(self().stages(), context, tokens);
  }

  // ---- one token after the other (generation/generate.hpp)

  /// Appends new tokens to the sequences of `cache`, none to those whose vector is empty, and returns the logits [sequences,
  /// vocabulary] after the last token of each (0 where there is no new one). The first call takes the prompts, of any lengths;
  /// later ones usually one token each, which then costs one row of each layer. The same on all ranks of one share, which pass
  /// the same tokens; under FSDP and ep all data ranks call it together. Numerics: those of `logits` up to rounding. Throws
  /// ShapeError if a sequence would be longer than the cache or the model has room for, UsageError for other tokens on other
  /// ranks, under cp, for a mask that is not causal, and for experts that drop tokens; the cache is then as before.
  std::vector<double> decode(KeyValueCache& cache, std::span<const std::vector<std::int32_t>> tokens) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::decode);
    const auto context = self().context();
    require_prompts(batch_axes(context), tokens);
    return detail::decode<double>(self().stages(), context, cache, tokens, tokens.size() * vocabulary(),
                                  [](const std::vector<double>& logits) { return logits; });
  }
  /// The same, but returns the tokens that choose(logits) has made of the logits, one for each sequence. It is called where the
  /// logits are, so they do not go through the pipeline; ranks that call it must choose alike.
  template <class Choose>
  requires std::is_invocable_r_v<std::vector<std::int32_t>, Choose&, const std::vector<double>&> std::vector<std::int32_t> decode(
      KeyValueCache& cache, std::span<const std::vector<std::int32_t>> tokens, Choose choose) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::decode);
    const auto context = self().context();
    require_prompts(batch_axes(context), tokens);
    return detail::decode<std::int32_t>(self().stages(), context, cache, tokens, tokens.size(),
                                        [&](const std::vector<double>& logits) { return choose(logits); });
  }
  /// The same; also writes the log-probability of each token, [sequences], 0 for a sequence without a new one. It is rounded to
  /// accumulate_t of the model's scalar, and has the bits of log_probability in a training forward if the run is batch-invariant
  /// (NumericsOptions).
  template <class Choose>
  requires std::is_invocable_r_v<std::vector<std::int32_t>, Choose&, const std::vector<double>&> std::vector<std::int32_t> decode(
      KeyValueCache& cache, std::span<const std::vector<std::int32_t>> tokens, Choose choose,
      std::vector<double>& log_probabilities) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::decode);
    const auto context = self().context();
    require_prompts(batch_axes(context), tokens);
    const std::size_t count = tokens.size(), columns = vocabulary();
    const std::vector<double> both =
        detail::decode<double>(self().stages(), context, cache, tokens, 2 * count,
                               [&](const std::vector<double>& logits, const std::vector<double>& all) {
                                 const std::vector<std::int32_t> chosen = choose(logits);
                                 std::vector<double> made(2 * count);
                                 for (std::size_t i = 0; i < count; ++i) {
                                   made[i] = chosen[i];
                                   if (chosen[i] >= 0) made[count + i] = all[i * columns + std::size_t(chosen[i])];
                                 }
                                 return made;
                               });
    log_probabilities.assign(both.begin() + std::ptrdiff_t(count), both.end());
    return std::vector<std::int32_t>(both.begin(), both.begin() + std::ptrdiff_t(count));
  }
  /// The size of the model's vocabulary; 0 if its type has none.
  std::size_t vocabulary() {
    if constexpr (requires { model_type::vocabulary(self().stages().config()); })
      return model_type::vocabulary(self().stages().config());
    else return 0;
  }

  // ---- custom training loops (pipeline/model_call.hpp)

  /// The model's forward, which keeps its saved state until its backward. A Module takes the first fields of the batch, or placed
  /// tensors of these samples. Other models take the batch and return the predictions of the last unit, or logits, or the input
  /// of the last unit if it has neither. The gradients of all calls add up until the optimizer's step. A call takes one
  /// micro-batch of several: forward(batch, MicroBatchIndex{i}). All ranks make the same calls in the same order.
  template <class... X>
  auto forward(const Batch& batch, const X&... x) {
    return forward(batch, whole_batch, x...);
  }
  template <class... X>
  auto forward(const Batch& batch, MicroBatchIndex micro, const X&... x) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::forward);
    const auto context = in_own_loop(batch, use_of_forward<Batch>);
    return forward_call(self().stages(), context, batch, micro, x...);
  }
  /// The model's own loss of these samples: value() as train_step's, and backward(weight) adds the gradients of the parameters.
  auto loss(const Batch& batch, MicroBatchIndex micro = whole_batch) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::loss);
    const auto context = in_own_loop(batch, BatchUse::all);
    return model_loss_call(self().stages(), context, batch, micro);
  }
  /// The loss f(Variables of x...) of these samples, which returns sum_losses(...): its value() is divided by the count of the
  /// global batch, and backward() gives the gradients of x.
  template <class F, class... X>
  auto loss(const Batch& batch, F f, const X&... x) {
    return loss(batch, whole_batch, std::move(f), x...);
  }
  template <class F, class... X>
  auto loss(const Batch& batch, MicroBatchIndex micro, F f, const X&... x) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::loss);
    return loss_call(self().stages(), self().context(), batch, micro, std::move(f), x...);
  }
  /// The fields of the batch as placed tensors, inputs[image], for forward and loss.
  auto inputs(const Batch& batch, MicroBatchIndex micro = whole_batch) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::inputs);
    const auto context = step_context(self().context());
    return inputs_of_t<model_type, std::remove_const_t<decltype(context)>>(context, batch)
        .first(micro_of(share_of(batch), micro));
  }

  /// Declares that the gradients of the last train_step will not be used, so that another may follow without an optimizer's step.
  void discard_gradients() { self().stages().discard_gradients(); }

  /// The whole parameter of this name, [global.size()] in double and row-major, the same on every rank. All ranks call it with
  /// the same name. Throws UsageError if the model has no parameter of this name. Numerics: exact.
  std::vector<double> parameter(std::string_view name) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::parameter);
    return whole_parameter(self().device(), self().communicator(), self().stages(), name, false, 1);
  }
  /// The parameter's gradient in the last train_step (a loss scale divided out); zero if nothing was added to it.
  std::vector<double> gradient(std::string_view name) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::gradient);
    self().stages().gradients()->complete();
    return whole_parameter(self().device(), self().communicator(), self().stages(), name, true,
                           self().loss_scale() ? self().loss_scale()->applied() : 1);
  }
  /// Sets the whole parameter of this name, [global.size()] and row-major, in every layout. All ranks call it with the same name
  /// and the same values. Gradients and an optimizer's moments stay as they are; a master copy starts from the value at the next
  /// step, unless the value is the copy's rounding. Throws UsageError if the model has no parameter of this name or of this
  /// size, if ranks differ, between a forward of a custom training loop and the optimizer's step, and for values in an offload
  /// store. Nothing has changed then. Numerics: rounded to nearest even in the type in which the rank
  /// keeps it.
  void set_parameter(std::string_view name, std::span<const double> values) { set_values(name, values); }
  void set_parameter(std::string_view name, std::span<const float> values) { set_values(name, values); }
  /// The names of the model's parameters in its order, the same on every rank.
  const std::vector<std::string>& parameter_names() { return self().stages().parameter_names(); }
  /// The parameters whose names match a pattern (`*` matches any characters, dots as well, `?` one) are not trained from
  /// here on: no gradient and no memory for one, no part in sums, norms and the optimizer's step, no optimizer state, no decay.
  /// Other parameters keep their bits. A communication hook starts anew. Collective over the mesh; not between train_step and the
  /// optimizer's step. Throws UsageError for a pattern that names no parameter.
  template <std::convertible_to<std::string_view>... Pattern>
  void freeze(const Pattern&... patterns) {
    set_trainable(false, patterns...);
  }
  /// The opposite: the parameters are trained from here on. Optimizer state starts anew.
  template <std::convertible_to<std::string_view>... Pattern>
  void unfreeze(const Pattern&... patterns) {
    set_trainable(true, patterns...);
  }
  /// Calls f(ParameterState&) for each parameter that this rank holds, once.
  template <class F>
  void for_each_state(F&& f) {
    self().stages().for_each_state(f);
  }
  /// The values that this rank's layers keep from step to step beside their parameters (a router's bias and load).
  auto buffers() { return self().stages().buffers(); }

 private:
  Self& self() { return static_cast<Self&>(*this); }
  double train(const Batch& batch) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::train_step);
    if (self().loss_scale()) self().loss_scale()->apply();
    return self().stages().train_step(in_training_step(batch), batch);
  }
  BatchAxes batch_axes(const auto& context) { return detail::batch_axes(self().stages().axes(), context.engine.hooks); }
  // The context of the step to which a batch belongs.
  auto in_step(const Batch& batch) {
    auto context = self().context();
    context.env.step = self().stages().gradients()->number_of(batch.step);
    return context;
  }
  // The same of a training step, whose ranks have been compared.
  auto in_training_step(const Batch& batch, BatchUse use = BatchUse::all) {
    if (Proof* const proof = self().device().proof(); proof != nullptr) [[unlikely]]
      begin_proven_step(*proof, self().device(), self().stages(), batch);
    auto context = in_step(batch);
    context.engine.longest = require_batches(batch_axes(context), context.env.step, batch, true, use);
    context.engine.first_step = self().stages().gradients()->is_first();
    return context;
  }
  auto in_own_loop(const Batch& batch, BatchUse use) {
    static_assert(!Self::uses(pp{}),
                  "weft: a custom training loop calls the whole model, and a rank of a pipeline has only a part of it: leave "
                  "PipelineParallel out, or use train_step");
    if (self().loss_scale()) self().loss_scale()->apply();
    auto context = in_training_step(batch, use);
    batch.check(use);
    return context;
  }
  template <class T>
  void set_values(std::string_view name, std::span<const T> values) {
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::set_parameter);
    self().stages().require_no_open_step("set_parameter");
    set_whole_parameter(self().device(), self().communicator(), self().stages(), name, values);
  }
  template <class... Pattern>
  WEFT_COLD void set_trainable(bool trainable, const Pattern&... patterns) {
    const std::vector<std::string_view> all{std::string_view(patterns)...};
    const comm::InFunction mark(self().communicator(), comm::ProgramFunction::set_trainable);
    self().stages().set_trainable(self().context().engine.hooks, self().communicator(), all, trainable);
  }
};

}  // namespace weft::detail
