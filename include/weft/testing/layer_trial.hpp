// SPDX-License-Identifier: Apache-2.0
#pragma once
// A trial of one rank's part of a layer, against the rules that pipelines, micro-batches and the executor require: forward is a
// function, backward adds, the halves of backward agree with the whole, `saved` owns everything that backward reads. A violation
// throws an Error that names the remedy. testing/check_layer.hpp uses it.

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/layer.hpp>
#include <weft/context/context.hpp>
#include <weft/core/philox.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/tensor/to.hpp>
#include <weft/tensor/transfer.hpp>
#include <weft/testing/made_parameters.hpp>
#include <weft/testing/numbers.hpp>
#include <weft/testing/trial_values.hpp>

namespace weft::testing::detail {

/// One layer in a context that binds A, or no axis, and other axes, which do not cut rows. X is the type of the layer's input.
template <weft::detail::Axis A, class X, class Layer, class Context, weft::detail::Axis... Others>
class Trial {
 public:
  using Values = TrialValues<A, X, Context, Others...>;
  static constexpr bool spread = Values::spread;

  struct Outcome {
    Numbers output, input_gradient;  // this rank's
    std::vector<Numbers> gradients;  // of the parameters, in their order
    std::vector<bool> touched;       // written by backward
    std::vector<unsigned> pending;
  };

  /// `shape` is the shape of the whole input.
  Trial(Layer& layer, const Context& context, const Made& made, const Shape& shape, const RankRows& rows, std::uint64_t seed)
      : layer_(layer), context_(context), parameters_(parameters_of(made)), values_(context, shape, rows, seed) {}

  const std::vector<ParameterState*>& parameters() const { return parameters_; }
  Numbers& input() { return values_.input(); }

  /// Checks every rule except the derivative. Returns the first forward and backward, executed alone.
  Outcome prove() {
    std::vector<Numbers> values;
    for (const ParameterState* state : parameters_) values.push_back(value_of(*state));
    const Outcome first = alone(0), second = alone(1);
    if (!same_bits(read(weft::forward(layer_, context_, values_.input_of(0)).output), first.output))
      refuse(
          "forward gives other bits for the same input the second time: it must be a function of its input, its parameters and "
          "the context, so it can keep nothing (a mutable member?) and read no memory that was never written; store the values "
          "that backward reads in saved");
    one_after_the_other(first, second);
    whole_at_once(first);
    for (const Dropped what : {Dropped::input, Dropped::output, Dropped::gradient}) dropped(what, first);
    for (const bool reversed : {false, true}) in_flight(false, reversed, first, second);
    if constexpr (halves())
      for (const bool reversed : {false, true}) in_flight(true, reversed, first, second);
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (!same_bits(values[i], value_of(*parameters_[i])))
        refuse("forward or backward writes into the value of " + parameters_[i]->name() +
               ": only the optimizer changes parameters");
    return first;
  }

  /// The sum of output · weights; backward computes its derivatives.
  double objective() {
    auto step = weft::forward(layer_, context_, values_.input_of(0));
    const Numbers output = read(step.output), weights = read(values_.gradient_of(step.output, 0));
    double value = 0;
    for (std::size_t i = 0; i < output.size(); ++i) value += output[i] * weights[i];
    // Losses that a layer adds to its gradients but not to its output (a router's auxiliary losses) belong to the objective.
    if constexpr (requires { layer_.added_loss(step.saved); }) value += layer_.added_loss(step.saved);
    values_.clear();
    return value;
  }

  /// Calls f(name, elements, their global indices) for the output and then for the input gradient.
  template <class F>
  void locate(F&& f) {
    begin_step();
    Flight flight = launch(0);
    std::size_t part = 0;
    const auto tell = [&](const std::string& name, const auto& y) {
      const auto home = values_.home(y);
      f(name, copy_to_host(home), values_.template places<std::remove_cvref_t<decltype(home)>>(home.shape()));
      return 0;
    };
    each_tensor(flight.step.output,
                [&](const auto& y) { return tell(part++ == 0 ? "the output" : "output " + std::to_string(part), y); });
    const auto dx = weft::backward(layer_, context_, std::move(flight.step.saved), flight.g);
    if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(dx)>, Nothing>) tell("the input", dx);
  }

 private:
  using Step = weft::detail::forward_t<Layer, Context, X>;
  using G = gradient_t<decltype(std::declval<Step>().output)>;
  struct Flight {
    std::unique_ptr<X> x;  // stays at its address, for a layer that keeps a reference
    Step step;
    G g;
  };
  enum class Dropped { input, output, gradient };
  static constexpr double tolerance = 1e-10;  // between two orders of the same sums

  static constexpr bool halves() {
    return requires(Layer & layer, const Context& context, Step step, const G& g) {
      layer.backward_input(context, std::move(step.saved), g);
    };
  }
  static constexpr const char* input_half() { return halves() ? "backward_input" : "backward"; }

  Device& device() const { return context_.device(); }

  std::vector<Numbers> around_all(const X& x, const G& g) const {
    std::vector<Numbers> all{values_.around(x)};
    each_tensor(g, [&](const auto& part) { return all.push_back(values_.around(part)), 0; });
    return all;
  }

  template <class Y>
  static Numbers read(const Y& y) {
    Numbers all;
    each_tensor(y, [&](const auto& part) {
      const auto values = copy_to_host(part);
      all.insert(all.end(), values.begin(), values.end());
      return 0;
    });
    return all;
  }
  Numbers value_of(const ParameterState& state) const {
    return copy_to_host(Tensor<double, Exec>(device(), state.local(), state.value()));
  }
  Numbers gradient_of(const ParameterState& state) const {
    if (state.gradients().fresh() || !state.gradient()) return Numbers(state.size(), 0.0);
    return copy_to_host(Tensor<double, Exec>(device(), state.local(), state.gradient()));
  }
  std::vector<Numbers> gradients() const {
    std::vector<Numbers> all;
    for (const ParameterState* state : parameters_) all.push_back(gradient_of(*state));
    return all;
  }

  // Begins a step: gradients hold the values of an earlier step, which must be overwritten.
  void begin_step(double left = not_a_number) {
    for (ParameterState* state : parameters_) {
      state->gradients().discard();
      if (state->gradient()) kernels::fill<double>(device(), state->size(), static_cast<double*>(state->gradient().get()), left);
    }
  }

  Flight launch(std::size_t k) {
    auto x = std::make_unique<X>(values_.input_of(k));
    Step step = weft::forward(layer_, context_, *x);
    G g = values_.gradient_of(step.output, k);
    return {std::move(x), std::move(step), std::move(g)};
  }
  Numbers land(Flight& flight) {
    return input_gradient(weft::backward(layer_, context_, std::move(flight.step.saved), flight.g));
  }

  template <class Dx>
  Numbers input_gradient(const Dx& dx) const {
    if constexpr (std::is_same_v<Dx, Nothing>) {
      refuse(std::string(input_half()) +
             " returns Nothing, but the input is of real numbers: the layer before would be given the output's gradient "
             "unchanged; return the input's gradient (zeros, if the output does not depend on it)");
    } else {
      require_gradient_of<X, Dx>();
      if (dx.shape() != values_.shape())
        refuse("the input gradient is " + dx.shape().text() + ", the input " + values_.shape().text() + ": they have one shape");
      return copy_to_host(dx);
    }
  }

  void require_unwritten(const std::vector<Numbers>& before, const std::vector<Numbers>& after, const char* who) const {
    for (std::size_t i = 0; i < before.size(); ++i)
      if (!same_bits(before[i], after[i]))
        refuse(std::string(who) + " writes into " + (i == 0 ? "the layer's input" : "the gradient that it is given") +
               ", or beyond its ends: others still read it, since a tensor is a handle; write into a tensor of your own, X "
               "y(x.device(), x.shape())");
  }

  Outcome alone(std::size_t k) {
    begin_step();
    Outcome outcome;
    const X x = values_.input_of(k);
    const std::vector<Numbers> x_before{values_.around(x)};
    Step step = weft::forward(layer_, context_, x);
    require_unwritten(x_before, {values_.around(x)}, "forward");
    outcome.output = read(step.output);
    if (!finite(outcome.output))
      refuse("forward reads beyond the " + std::to_string(x.shape()[0]) +
             " rows of its input, or memory that was never written: its output has elements that are not numbers. Where an axis "
             "cuts "
             "rows, those beside them are on other ranks: see positions_of(context, x), or bring x to Invariant on that axis");
    const G g = values_.gradient_of(step.output, k);
    const auto before = around_all(x, g);
    auto split = weft::backward_input(layer_, context_, std::move(step.saved), g);
    require_unwritten(before, around_all(x, g), input_half());
    outcome.input_gradient = input_gradient(split.input_gradient);
    if (!finite(outcome.input_gradient))
      refuse(std::string(input_half()) +
             " reads beyond the rows of the gradient or of the saved values, or memory that was never written: the input "
             "gradient has "
             "elements that are not numbers");
    weft::backward_weight(layer_, context_, std::move(split.deferred));
    require_unwritten(before, around_all(x, g), "backward_weight");
    outcome.gradients = gradients();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      outcome.touched.push_back(!parameters_[i]->gradients().fresh());
      outcome.pending.push_back(parameters_[i]->gradients().unreduced());
    }
    bool all_finite = true;
    for (const Numbers& gradient : outcome.gradients) all_finite = all_finite && finite(gradient);
    if (!all_finite) unwritten_gradient(k, outcome);
    return outcome;
  }

  WEFT_COLD void unwritten_gradient(std::size_t k, const Outcome& outcome) {
    const auto name = [&](std::size_t i) { return parameters_[i]->name(); };
    std::size_t bad = 0;
    while (finite(outcome.gradients[bad])) ++bad;
    if constexpr (!spread) {
      begin_step(0.0);
      Flight flight = launch(k);
      land(flight);
      if (finite(gradient_of(*parameters_[bad])))
        refuse("backward adds to the gradient of " + name(bad) +
               " when it is the first to write it: where open_gradient sets `first`, its elements hold values of an earlier "
               "step, so overwrite all of them (accumulate does)");
    }
    refuse("backward leaves elements of the gradient of " + name(bad) +
           " that are not numbers: it does not overwrite all of them where open_gradient sets `first` (accumulate does), or "
           "reads beyond its arguments");
  }

  // A text about the first parameter with an unexpected gradient, with the difference; empty if there is none.
  std::string other_gradient(const std::vector<Numbers>& mine, const std::vector<Numbers>& expected) const {
    for (std::size_t i = 0; i < mine.size(); ++i)
      if (const double off = distance(mine[i], expected[i]); !(off <= tolerance))
        return "the gradient of " + parameters_[i]->name() + " (off by " + std::to_string(off) + " of its largest element)";
    return {};
  }
  static std::string other_input_gradient(const Numbers& mine, const Numbers& expected) {
    const double off = distance(mine, expected);
    return off <= tolerance ? std::string() : "the input gradient (off by " + std::to_string(off) + " of its largest element)";
  }
  static std::vector<Numbers> sums(const Outcome& a, const Outcome& b) {
    std::vector<Numbers> all;
    for (std::size_t i = 0; i < a.gradients.size(); ++i) all.push_back(sum_of(a.gradients[i], b.gradients[i]));
    return all;
  }

  void one_after_the_other(const Outcome& first, const Outcome& second) {
    begin_step();
    for (const std::size_t k : {0, 1}) {
      Flight flight = launch(k);
      land(flight);
    }
    if (const std::string what = other_gradient(gradients(), sums(first, second)); !what.empty())
      refuse("backward does not add: after two micro-batches " + what +
             " is not the sum of theirs; add to the elements (accumulate), and overwrite only where open_gradient sets `first`");
  }

  void whole_at_once([[maybe_unused]] const Outcome& first) {
    if constexpr (halves() && requires(Flight f) { layer_.backward(context_, std::move(f.step.saved), f.g); }) {
      begin_step();
      Flight flight = launch(0);
      const Numbers dx = input_gradient(layer_.backward(context_, std::move(flight.step.saved), flight.g));
      std::string what = other_input_gradient(dx, first.input_gradient);
      if (what.empty()) what = other_gradient(gradients(), first.gradients);
      if (!what.empty())
        refuse("backward and its halves backward_input and backward_weight disagree about " + what +
               ": write either backward or the halves");
    }
  }

  // Fills memory with NaN if no other handle shares it.
  template <class Y>
  void drop(Y y) {
    if constexpr (!std::is_same_v<Y, Nothing>)
      each_tensor(y, [&](const auto& part) {
        if (part && part.unique()) kernels::fill<double>(device(), part.size(), part.data(), not_a_number);
        return 0;
      });
  }

  void dropped(Dropped what, const Outcome& expected) {
    begin_step();
    Flight flight = launch(0);
    const auto nothing_like = [&]<class Y>(const Y& y) {
      return values_.template guarded<Y>(y.shape(), Numbers(y.size(), not_a_number));
    };
    if (what == Dropped::input) *flight.x = nothing_like(*flight.x);
    if (what == Dropped::output) drop(std::move(flight.step.output));
    auto split = weft::backward_input(layer_, context_, std::move(flight.step.saved), flight.g);
    const Numbers dx = input_gradient(split.input_gradient);
    if (what == Dropped::gradient) {
      flight.g = each_tensor(flight.g, nothing_like);
      drop(std::move(split.input_gradient));
    }
    weft::backward_weight(layer_, context_, std::move(split.deferred));
    std::string other = other_input_gradient(dx, expected.input_gradient);
    if (other.empty()) other = other_gradient(gradients(), expected.gradients);
    if (other.empty()) return;
    if (what == Dropped::gradient)
      refuse(
          "backward_weight reads the gradient that backward_input was given, or the one that it returned, when both are gone: " +
          other + " changes; keep the tensor itself in deferred, not its data() nor a reference");
    refuse(std::string("backward reads forward's ") + (what == Dropped::input ? "input" : "output") +
           " when it is gone: " + other + " changes; keep the tensor itself in saved, not its data() nor a reference");
  }

  void in_flight(bool deferred, bool reversed, const Outcome& first, const Outcome& second) {
    begin_step();
    Flight flights[2] = {launch(0), launch(1)};
    Numbers dx[2];
    if (!deferred) {
      for (const std::size_t i : {0, 1}) {
        const std::size_t k = reversed ? 1 - i : i;
        dx[k] = land(flights[k]);
      }
    } else {
      auto one = weft::backward_input(layer_, context_, std::move(flights[0].step.saved), flights[0].g);
      auto two = weft::backward_input(layer_, context_, std::move(flights[1].step.saved), flights[1].g);
      dx[0] = input_gradient(one.input_gradient), dx[1] = input_gradient(two.input_gradient);
      if (!reversed) weft::backward_weight(layer_, context_, std::move(one.deferred));
      weft::backward_weight(layer_, context_, std::move(two.deferred));
      if (reversed) weft::backward_weight(layer_, context_, std::move(one.deferred));
    }
    std::string what = other_input_gradient(dx[0], first.input_gradient);
    if (what.empty()) what = other_input_gradient(dx[1], second.input_gradient);
    if (what.empty()) what = other_gradient(gradients(), sums(first, second));
    if (what.empty()) return;
    if (deferred)
      refuse("backward_weight after another micro-batch's backward_input gives something else than right after its own: " + what +
             " changes; a pipeline defers it, so store the values that it reads in deferred, not in a member");
    refuse("two forwards before their backwards give something else than one after the other: " + what +
           " changes; pipelines have several micro-batches under way, so store the values that backward reads in saved, not in a "
           "member");
  }

  Layer& layer_;
  const Context& context_;
  std::vector<ParameterState*> parameters_;
  Values values_;
};

}  // namespace weft::testing::detail
