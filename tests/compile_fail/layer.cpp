// SPDX-License-Identifier: Apache-2.0
// Layers with a forward and a backward that are not whole.
#include <mutex>
#include <weft/weft.hpp>

using namespace weft;

// section: backward_input_returns_nothing
// A backward_input that returns nothing.
// expect: this layer's backward returns nothing .void.: .*backward_input: InputGradient.dx, deferred.
// mention: Own
struct Own {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#ifdef WEFT_FAIL
  auto backward_input(const auto&, auto x, const auto& g) { (void)times_row(g, gain.for_operand(x)); }
#else
  auto backward_input(const auto&, auto x, const auto& g) {
    auto deferred = times(g, x);
    return InputGradient{times_row(g, gain.for_operand(x)), std::move(deferred)};
  }
#endif
  void backward_weight(const auto& context, auto product) { gain.accumulate(context, sum_rows(product)); }
};

// section: backward_input_without_split
// A backward_input that returns only the gradient.
// expect: this layer's backward_input returns something else than an InputGradient, such as the gradient alone
// mention: Own
struct Own {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#ifdef WEFT_FAIL
  auto backward_input(const auto&, auto x, const auto& g) { return times_row(g, gain.for_operand(x)); }
#else
  auto backward_input(const auto&, auto x, const auto& g) {
    auto deferred = times(g, x);
    return InputGradient{times_row(g, gain.for_operand(x)), std::move(deferred)};
  }
#endif
  void backward_weight(const auto& context, auto product) { gain.accumulate(context, sum_rows(product)); }
};

// section: backward_returns_a_split
// The first half of backward under the name of both.
// expect: this layer's backward returns an InputGradient, the result of backward_input: call it backward_input
// mention: Own
struct Own {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#ifdef WEFT_FAIL
  auto backward(const auto&, auto x, const auto& g) {
    auto deferred = times(g, x);
    return InputGradient{times_row(g, gain.for_operand(x)), std::move(deferred)};
  }
#else
  auto backward_input(const auto&, auto x, const auto& g) {
    auto deferred = times(g, x);
    return InputGradient{times_row(g, gain.for_operand(x)), std::move(deferred)};
  }
#endif
  void backward_weight(const auto& context, auto product) { gain.accumulate(context, sum_rows(product)); }
};

// section: backward_weight_by_reference
// A backward_weight that takes the deferred state by non-const reference.
// expect: this layer's backward_weight cannot be called with the context and the values that backward_input deferred
// mention: Own
struct Own {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
  auto backward_input(const auto&, auto x, const auto& g) {
    auto deferred = times(g, x);
    return InputGradient{times_row(g, gain.for_operand(x)), std::move(deferred)};
  }
#ifdef WEFT_FAIL
  void backward_weight(const auto& context, auto& product) { gain.accumulate(context, sum_rows(product)); }
#else
  void backward_weight(const auto& context, auto product) { gain.accumulate(context, sum_rows(product)); }
#endif
};

// section: backward_without_saved
// A backward that takes only the gradient.
// expect: this layer has no backward.context, saved, gradient., nor backward_input, that can be called
// mention: Own
struct Own {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#ifdef WEFT_FAIL
  auto backward(const auto& context, const auto& g) {
    gain.accumulate(context, sum_rows(g));
    return times_row(g, gain.for_operand(g));
  }
#else
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
#endif
};

// section: forward_not_const
// A forward that may write into its layer.
// expect: this layer's forward is not const: .*store the values that backward reads in saved
// mention: Own
struct Own {
  Parameter<> gain;
#ifdef WEFT_FAIL
  auto forward(const auto&, const auto& x) { return Result{times_row(x, gain.for_operand(x)), x}; }
#else
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#endif
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

// section: forward_of_one_type
// A forward that takes a tensor without placements, while the block's input has some.
// expect: this layer's forward cannot be called .*whatever their types
// mention: Own
struct Own {
  Parameter<> gain;
#ifdef WEFT_FAIL
  auto forward(const auto&, const Tensor<float, Kokkos::DefaultExecutionSpace>& x) const {
    return Result{times_row(x, gain.for_operand(x)), x};
  }
#else
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#endif
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

// section: forward_private
// A class with private members, the default.
// expect: this layer's forward cannot be called .*it must be public
// mention: Own
struct Own {
  Parameter<> gain;
#ifdef WEFT_FAIL
 private:
#else
 public:
#endif
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }

 public:
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

// section: forward_returns_a_pair
// A forward whose output and saved are a pair.
// expect: this layer's forward returns something else than a Result
// mention: Own
struct Own {
  Parameter<> gain;
#ifdef WEFT_FAIL
  auto forward(const auto&, const auto& x) const { return std::pair{times_row(x, gain.for_operand(x)), x}; }
#else
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#endif
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

// section: forward_returns_nothing
// A forward that forgets to return.
// expect: this layer's forward returns nothing .void.: return Result.output, saved.
// mention: Own
struct Own {
  Parameter<> gain;
#ifdef WEFT_FAIL
  auto forward(const auto&, const auto& x) const { (void)times_row(x, gain.for_operand(x)); }
#else
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#endif
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

// section: forward_without_context
// A forward that takes only its input.
// expect: this layer's forward cannot be called with the context and its input
// mention: Own
struct Own {
  Parameter<> gain;
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#else
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#endif
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

// section: forward_without_result
// A forward that returns only its output.
// expect: this layer's forward returns something else than a Result, such as its output alone: return Result.output, saved.
// mention: Own
struct Own {
  Parameter<> gain;
#ifdef WEFT_FAIL
  auto forward(const auto&, const auto& x) const { return times_row(x, gain.for_operand(x)); }
#else
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#endif
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

// section: saved_cannot_be_moved
// Saved state with a mutex, which cannot be moved and kept until backward.
// expect: this layer's forward saves values that cannot be moved
// mention: Own
struct Own {
  Parameter<> gain;
  template <class X>
  struct Saved {
    X x;
#ifndef WEFT_FAIL
    Saved(Saved&&) = default;
#endif
    explicit Saved(const X& input) : x(input) {}
#ifdef WEFT_FAIL
    std::mutex mutex;
#endif
  };
  template <class X>
  auto forward(const auto&, const X& x) const {
    return Result<X, Saved<X>>{times_row(x, gain.for_operand(x)), Saved<X>(x)};
  }
  template <class X>
  auto backward(const auto& context, Saved<X>&& saved, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, saved.x)));
    return times_row(g, gain.for_operand(saved.x));
  }
};

// section: saved_references
// Saved state that refers to tensors which no longer exist in backward.
// expect: this layer's forward saves references, which dangle when backward runs: .*not std::tie
// mention: Own
struct Own {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const {
#ifdef WEFT_FAIL
    return Result{times_row(x, gain.for_operand(x)), std::tie(x)};
#else
    return Result{times_row(x, gain.for_operand(x)), std::tuple{x}};
#endif
  }
  auto backward(const auto& context, auto saved, const auto& g) {
    const auto& [x] = saved;
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

// section: without_backward
// A layer without any backward.
// expect: this layer has no backward: write `auto backward\(const auto& context, auto saved, const auto& gradient\)`
// mention: Own
struct Own {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#ifndef WEFT_FAIL
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
#endif
};

// section: without_backward_weight
// A layer that defers the gradient of its gain, and never computes it.
// expect: this layer.s backward_input defers something, and it has no backward_weight: write `void backward_weight
// mention: Own
struct Own {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
  auto backward_input(const auto&, auto x, const auto& g) {
    auto deferred = times(g, x);
    return InputGradient{times_row(g, gain.for_operand(x)), std::move(deferred)};
  }
#ifndef WEFT_FAIL
  void backward_weight(const auto& context, auto product) { gain.accumulate(context, sum_rows(product)); }
#endif
};

// section: without_forward
// A layer that calls its forward by another name.
// expect: this layer has no forward: write `auto forward\(const auto& context, const auto& x\) const`
// mention: Own
struct Own {
  Parameter<> gain;
#ifdef WEFT_FAIL
  auto operator()(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#else
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#endif
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

// after each section
struct Model : models::Gpt {
  using Block = Residual<Sequential<LayerNorm, Own>>;
  static Block make_block(const auto& context, const Config& config, std::size_t) {
    return Residual(
        Sequential(LayerNorm(context / "norm", config.width), Own{Parameter<>(context, "gain", {config.width}, ones)}));
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
