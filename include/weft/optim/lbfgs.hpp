// SPDX-License-Identifier: Apache-2.0
#pragma once
// L-BFGS for small models (Liu and Nocedal 1989), as torch.optim.LBFGS has it, with a fixed step or a search for a step with the
// strong Wolfe conditions (Nocedal and Wright, Numerical Optimization, chapters 3 and 7). It evaluates the loss several times in
// a step, so it takes a function that computes loss and gradients, on the same batch each time:
//
//   optim::Lbfgs optimizer(model, {.strong_wolfe = true});
//   const double loss = optimizer.step([&] { return model.train_step(batch); });

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/error.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/engine/step_gradients.hpp>
#include <weft/optim/line_search.hpp>
#include <weft/optim/trainable.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::optim {

/// Options of Lbfgs, with the names of torch.optim.LBFGS in comments.
struct LbfgsOptions {
  double learning_rate = 1;          ///< lr: the fixed step, or the first one that the search tries
  std::size_t iterations = 20;       ///< max_iter, of one call of step
  std::size_t evaluations = 0;       ///< max_eval, of one call of step; 0: 5/4 of the iterations
  double gradient_tolerance = 1e-7;  ///< tolerance_grad, of the largest element
  double change_tolerance = 1e-9;    ///< tolerance_change, of the loss and of the largest element of a step
  std::size_t history = 100;         ///< history_size: pairs of vectors, each as large as the parameters
  bool strong_wolfe = false;         ///< line_search_fn="strong_wolfe"
};

/// The optimizer of all trainable parameters of `Model`, a wrapper or SingleDevice in float or double. Each rank holds vectors
/// for the elements that it holds, on the host in double; dot products count each element once and are summed over all ranks, so
/// every rank takes the same steps. For stage 0 of ZeRO. The history begins anew after freeze or unfreeze, and it is not in
/// checkpoints. Other optimizers may update parameters that are frozen while this one is made; it leaves those as they are.
template <Trainable Model>
class Lbfgs {
  using P = weft::detail::computed_t<typename Model::model_type::scalar>;
  static_assert(sizeof(P) >= 4, "weft: L-BFGS needs a model in float or double: differences of 16-bit gradients are rounding");

 public:
  /// Throws UsageError for options out of range, for ZeRO above stage 0, for offloaded parameters, for a loss scale, and if
  /// another optimizer updates one of the trainable parameters.
  explicit Lbfgs(Model& model, const LbfgsOptions& options = {}) : model_(&model), options_(options) {
    require_option("learning rate", options.learning_rate);
    require_option("gradient_tolerance", options.gradient_tolerance);
    require_option("change_tolerance", options.change_tolerance);
    if (options.iterations == 0 || options.history == 0)
      throw_error<UsageError>(
          {"L-BFGS: iterations(", options.iterations, ") and history(", options.history, ") must be at least 1"});
    if constexpr (requires { model.loss_scale(); })
      if (model.loss_scale())
        throw_error<UsageError>(
            {"L-BFGS: ModelOptions::numerics.loss_scale multiplies the gradients and not the loss, and gradients ",
             "in float or double need none: leave it out"});
    model.for_each_state([&](ParameterState& state) {
      if (state.trainable() && !state.is_free_for(token_)) detail::refuse_second(state.name());
      if (state.storage().sharder() || state.storage().store())
        throw_error<UsageError>({"L-BFGS: ", state.name(),
                                 " is sharded over data ranks or offloaded: use ModelOptions::shard.stage ",
                                 "0 without offload, or an optimizer that works element by element, such as AdamW"});
    });
    trained_ = claimed();
    if constexpr (requires { model.stages().gradients(); }) {
      gradients_ = weft::detail::register_optimizer(model.stages().gradients());
      used_ = gradients_->used();
      gradients_->applied = true;  // losing earlier gradients is allowed
    }
    if (options_.evaluations == 0) options_.evaluations = options.iterations * 5 / 4;
  }

  /// Lowers the loss by up to `iterations` directions. `closure()` computes the gradients of the parameters as they are, on the
  /// same batch each time, and returns the loss, the same on every rank, as model.train_step or a custom training loop does; a
  /// number of the batch (Batch::step) may repeat. Returns the loss before the step; infinity if its gradient is not finite. A
  /// loss or gradient that is not finite ends the step where both were last finite, or shortens the length that is searched. The
  /// last of `iterations` fixed steps is taken without an evaluation after it, as in torch. Collective over the whole mesh.
  /// Throws UsageError if the closure computes no new gradients. If the closure throws, on every rank, the parameters and the
  /// history are those before the call, and its gradients are discarded.
  template <class Closure>
  double step(Closure&& closure) {
    follow_trainable();
    const Vector before = values();
    History history = history_;
    try {
      return lowered(closure, before);
    } catch (...) {
      history_ = std::move(history);
      write(before);
      if constexpr (requires { model_->discard_gradients(); })
        if (gradients_ && (gradients_->pending() || gradients_->open)) model_->discard_gradients();
      throw;
    }
  }

  /// Directions taken since the history began.
  std::size_t directions() const { return history_.begun; }
  const LbfgsOptions& options() const { return options_; }

 private:
  using Vector = std::vector<double>;  // of the elements that this rank holds, parameter by parameter
  struct Evaluation {
    double loss;  // infinity if the gradient is not finite
    Vector gradient;
  };
  struct Pair {
    Vector change, of_gradient;  // of the parameters and of the gradient, over one step
    double product;              // 1 / their dot product
  };
  struct History {
    std::deque<std::shared_ptr<const Pair>> pairs;  // shared: a step copies the history
    Vector direction, gradient;                     // of the last step: its direction, and the gradient that it began with
    double length = 0, scale = 1;
    std::size_t begun = 0;
  };

  /// The step from the parameters `x`.
  template <class Closure>
  double lowered(Closure& closure, Vector x) {
    const auto evaluate = [&](const Vector& at) {
      write(at);
      return this->evaluated(closure);
    };
    Evaluation now = evaluated(closure);
    const double first = now.loss;
    std::size_t evaluations = 1;
    for (std::size_t k = 1; std::isfinite(now.loss) && largest(now.gradient) > options_.gradient_tolerance; ++k) {
      direct(now.gradient);
      const double slope = dot(now.gradient, history_.direction);
      if (!(std::isfinite(slope) && slope <= -options_.change_tolerance)) {
        history_.direction.clear();  // no step was taken, of which the next one would learn
        break;
      }
      history_.length = history_.begun == 1 ? std::min(1.0, 1 / sum_of_magnitudes(now.gradient)) * options_.learning_rate
                                            : options_.learning_rate;
      const double before = now.loss;
      Vector next;
      const auto at = [&](double length) {
        next = x;
        for (std::size_t i = 0; i < next.size(); ++i) next[i] += length * history_.direction[i];
        ++evaluations;
        return evaluate(next);
      };
      if (options_.strong_wolfe) {
        const auto tried = [&](double length) {
          Evaluation there = at(length);
          const double slope_there = dot(there.gradient, history_.direction);
          return detail::LinePoint<Vector>{length, there.loss, slope_there, std::move(there.gradient)};
        };
        auto found = detail::strong_wolfe<Vector>({0, now.loss, slope, now.gradient}, history_.length,
                                                  largest(history_.direction), options_.change_tolerance, tried);
        history_.length = found.at;
        now = {found.loss, std::move(found.gradient)};
      } else if (k < options_.iterations) {
        if (Evaluation there = at(history_.length); std::isfinite(there.loss)) {
          now = std::move(there);
        } else {
          write(x);
          history_.direction.clear();
          break;
        }
      }
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += history_.length * history_.direction[i];
      write(x);
      if (k == options_.iterations || evaluations >= options_.evaluations) break;
      if (history_.length * largest(history_.direction) <= options_.change_tolerance) break;
      if (std::abs(now.loss - before) < options_.change_tolerance) break;
    }
    return first;
  }

  /// Sets history_.direction to minus the inverse Hessian, as far as the pairs have it, times the gradient.
  void direct(const Vector& gradient) {
    if (history_.begun++ > 0) learn(gradient);
    history_.direction = gradient;
    for (double& element : history_.direction) element = -element;
    const auto& pairs = history_.pairs;
    std::vector<double> parts(pairs.size());
    for (std::size_t i = pairs.size(); i-- > 0;) {
      parts[i] = dot(pairs[i]->change, history_.direction) * pairs[i]->product;
      add(history_.direction, -parts[i], pairs[i]->of_gradient);
    }
    for (double& element : history_.direction) element *= history_.scale;
    for (std::size_t i = 0; i < pairs.size(); ++i)
      add(history_.direction, parts[i] - dot(pairs[i]->of_gradient, history_.direction) * pairs[i]->product, pairs[i]->change);
    history_.gradient = gradient;
  }
  /// Adds the pair of the last step, if the loss is convex along it.
  void learn(const Vector& gradient) {
    if (history_.direction.empty()) return;
    Pair pair{std::move(history_.direction), gradient, 0};
    for (double& element : pair.change) element *= history_.length;
    add(pair.of_gradient, -1, history_.gradient);
    const double product = dot(pair.change, pair.of_gradient);
    if (!(product > 1e-10)) return;
    history_.scale = product / dot(pair.of_gradient, pair.of_gradient);
    pair.product = 1 / product;
    if (history_.pairs.size() == options_.history) history_.pairs.pop_front();
    history_.pairs.push_back(std::make_shared<const Pair>(std::move(pair)));
  }

  template <class Closure>
  Evaluation evaluated(Closure& closure) {
    double loss = closure();
    if (gradients_) complete_gradients();
    Vector gradient;
    for_each_trained([&](ParameterState& state) {
      if (!state.gradient() || !state.gradients().touched()) gradient.resize(gradient.size() + state.size());
      else append(gradient, state.size(), static_cast<const P*>(state.gradient().get()));
    });
    if (!std::isfinite(dot(gradient, gradient)) || std::isinf(loss)) loss = std::numeric_limits<double>::infinity();
    return {loss, std::move(gradient)};
  }
  /// Sums the gradients of a custom training loop over ranks, and allows the next evaluation, also of the same Batch::step.
  void complete_gradients() {
    const bool own_loop = gradients_->open != nullptr;
    gradients_->complete();
    gradients_->require_new(used_);
    const auto touched = [](ParameterState* state) { return state->gradients().touched(); };
    if (own_loop && !trained_.empty() && std::none_of(trained_.begin(), trained_.end(), touched))
      weft::detail::refuse_no_backward();
    used_ = gradients_->use(true);
  }
  /// The trainable parameters of which this is, or becomes, the optimizer.
  std::vector<ParameterState*> claimed() {
    std::vector<ParameterState*> all;
    model_->for_each_state([&](ParameterState& state) {
      if (!state.is_free_for(token_)) return;
      state.claim(state.trainable() ? token_ : nullptr);
      if (state.trainable()) all.push_back(&state);
    });
    return all;
  }
  /// Begins anew if any rank trains other parameters than in the last step.
  void follow_trainable() {
    const auto before = std::exchange(trained_, claimed());
    double changed = before != trained_;
    model_->communicator().all_reduce(std::span<double>(&changed, 1), Reduction::max);
    if (changed == 0) return;
    history_ = {};
  }
  Vector values() {
    Vector all;
    for_each_trained([&](ParameterState& state) { append(all, state.size(), static_cast<const P*>(state.value().get())); });
    return all;
  }
  void write(const Vector& x) {
    std::size_t at = 0;
    for_each_trained([&](ParameterState& state) {
      const std::vector<P> numbers(x.begin() + std::ptrdiff_t(at), x.begin() + std::ptrdiff_t(at + state.size()));
      weft::detail::copy_to_device(model_->device(), state.value().get(), numbers.data(), numbers.size() * sizeof(P));
      model_->device().exec().fence("weft::optim::Lbfgs");
      at += state.size();
    });
  }
  void append(Vector& all, std::size_t size, const P* elements) {
    std::vector<P> numbers(size);
    weft::detail::copy_from_device(model_->device(), numbers.data(), elements, size * sizeof(P));
    model_->device().exec().fence("weft::optim::Lbfgs");
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
  template <class F>
  void for_each_trained(F&& f) {
    for (ParameterState* state : trained_) f(*state);
  }

  static void add(Vector& to, double factor, const Vector& x) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += factor * x[i];
  }
  double dot(const Vector& a, const Vector& b) {
    return reduced(Reduction::sum, [&](double sum, std::size_t i) { return sum + a[i] * b[i]; });
  }
  double sum_of_magnitudes(const Vector& a) {
    return reduced(Reduction::sum, [&](double sum, std::size_t i) { return sum + std::abs(a[i]); });
  }
  double largest(const Vector& a) {
    return reduced(Reduction::max, [&](double most, std::size_t i) { return std::max(most, std::abs(a[i])); });
  }
  /// Over the elements of all ranks, each once.
  template <class F>
  double reduced(Reduction reduction, const F& next) {
    double result = 0;
    std::size_t begin = 0;
    for_each_trained([&](ParameterState& state) {
      if (state.counted()) {
        if (state.info().replicas == 1)
          for (std::size_t i = 0; i < state.size(); ++i) result = next(result, begin + i);
        else
          for (const weft::detail::Run& run : state.runs())
            for (std::size_t i = 0; run.owned && i < run.length; ++i) result = next(result, begin + run.local + i);
      }
      begin += state.size();
    });
    model_->communicator().all_reduce(std::span<double>(&result, 1), reduction);
    return result;
  }

  Model* model_;
  LbfgsOptions options_;
  std::shared_ptr<const char> token_ = std::make_shared<char>('\0');  // identifies this optimizer to its parameters
  std::vector<ParameterState*> trained_;
  std::shared_ptr<weft::detail::StepGradients> gradients_;  // null: the model does not report gradients
  std::uint64_t used_ = 0;                                  // the step of the last evaluation's gradients
  History history_;
};

template <class Model>
Lbfgs(Model&, LbfgsOptions) -> Lbfgs<Model>;
template <class Model>
Lbfgs(Model&) -> Lbfgs<Model>;

}  // namespace weft::optim
