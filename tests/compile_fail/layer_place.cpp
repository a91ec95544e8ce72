// SPDX-License-Identifier: Apache-2.0
// Layers in a place of a model that they do not fit.
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;
using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using X = Tensor<float, Kokkos::DefaultExecutionSpace>;

// section: backward_by_reference
// A backward takes the saved state by non-const reference, but it is passed as an rvalue.
// expect: that can be called with the values that its forward saved, passed as an rvalue: take `saved` by value
// mention: Scale
struct Scale {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#ifdef WEFT_FAIL
  auto backward(const auto& context, auto& x, const auto& g) { return through(context, x, g); }
#else
  auto backward(const auto& context, auto x, const auto& g) { return through(context, x, g); }
#endif
  auto through(const auto& context, const auto& x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

struct Model : models::Gpt {
  using Block = Residual<Sequential<LayerNorm, Scale>>;
  static Block make_block(const auto& context, const Config& config, std::size_t) {
    return Residual(
        Sequential(LayerNorm(context / "norm", config.width), Scale{Parameter<>(context, "gain", {config.width}, ones)}));
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: backward_without_return
// A backward that adds to its parameter and returns nothing.
// expect: this layer's backward returns nothing .void.: return the gradient of the input
// mention: Scale
struct Scale {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
#ifndef WEFT_FAIL
    return times_row(g, gain.for_operand(x));
#endif
  }
};

struct Model : models::Gpt {
  using Block = Residual<Sequential<LayerNorm, Scale>>;
  static Block make_block(const auto& context, const Config& config, std::size_t) {
    return Residual(
        Sequential(LayerNorm(context / "norm", config.width), Scale{Parameter<>(context, "gain", {config.width}, ones)}));
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: block_changes_placement
// A repeated block with a whole input and a Partial output: the next block could not take it.
// expect: a repeated block must return what it takes|the two terms are placed differently|not the dual of its input
// mention: Partial<weft::tp>
template <class Context>
auto leaky_block(const Context& context, const models::GptConfig& config) {
#ifdef WEFT_FAIL
  return Sequential(LayerNorm(context, config.width), Linear<Column>(context / "up", config.width, config.width), Gelu{},
                    Linear<Row>(context / "down", config.width, config.width));
#else
  return Residual(Sequential(LayerNorm(context, config.width), Linear<Column>(context / "up", config.width, config.width), Gelu{},
                             Linear<Row>(context / "down", config.width, config.width)));
#endif
}

struct Model : models::Gpt {
  using Block = decltype(leaky_block(std::declval<const Context<Compute<Kokkos::DefaultExecutionSpace, float>>&>(), Config{}));
  template <class Context>
  static Block make_block(const Context& context, const Config& config, std::size_t index) {
    return leaky_block(context / std::to_string(index), config);
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: back_without_targets
// A back with a forward without targets, so it has no loss.
// expect: this layer's forward cannot be called .*a model's back: context, hidden state and targets
// mention: Own
struct Own {
  LanguageHead<LayerNorm> head;
#ifdef WEFT_FAIL
  auto forward(const auto& context, const auto& x) const { return head.norm.forward(context, x); }
#else
  auto forward(const auto& context, const auto& x, const auto& targets) const { return head.forward(context, x, targets); }
#endif
  auto backward(const auto& context, auto saved, const auto& g) { return weft::backward(head, context, std::move(saved), g); }
};

struct Model : models::Gpt {
  using Front = Embedding;
  using Back = Own;
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Own{LanguageHead<LayerNorm>(LayerNorm(context / "norm", config.width), front->table)};
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: input_without_gradient
// A layer whose backward returns only the gradient of its first input is called with two values that have gradients.
// expect: a layer's backward gives the gradient of its first input, and another input of this call is a Variable of real numbers
// mention: detach
struct Weighted : Primitive<Weighted> {
  auto forward(const auto&, const auto& x, const auto& weight) const { return Result{times(x, weight), weight}; }
  auto backward(const auto&, auto weight, const auto& g) const { return times(g, weight); }
};

struct Own : Module<Own> {
  Weighted weighted;
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return weighted(x, sigmoid(x)); }
#else
  auto forward(const auto& x) const { return weighted(x, sigmoid(x).detach()); }
#endif
};

auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}

// section: made_in_a_step
// The forward of a block makes a layer of weft, by its context and a name, as a constructor does.
// expect: weft: a layer or a Parameter is made while a step runs, so it would be drawn anew each time and never trained: make it in the constructor
// mention: layer_place.cpp:
struct Own : Module<Own> {
  LayerNorm norm;
  Linear<> up;
  Dropout dropout;
  Own(const auto& context, std::size_t width)
      : norm(context / "norm", width), up(context / "up", width, width), dropout(context / "dropout", 0.1) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    const Linear<> late(x.context() / "late", x.columns(), x.columns());
    return late(dropout(up(norm(x))));
#else
    return dropout(up(norm(x)));
#endif
  }
};

struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Own(context / "blocks" / std::to_string(index), config.width);
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, pp> mesh(world, {.pp = 2});
  DataParallel<PipelineParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: made_without_context
// A layer constructed only from sizes, as in other frameworks.
// expect: Linear takes the context with its name
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
#ifdef WEFT_FAIL
  Net(const auto& context, const Config& config) : layer(config.width, config.width) {}
#else
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
#endif
  auto forward(const auto& x) const { return silu(layer(x)); }
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: returns_an_object
// A layer with its own backward returns a struct with a member that is not a tensor.
// expect: this layer returns something else than a tensor, or a std::tuple or a struct of tensors
struct Stem : Module<Stem> {
  Parameter<> weight;
  Stem(const auto& context, std::size_t width) : weight(context, "weight", {width, width}, ones) {}
  auto forward(const auto& batch) const { return matmul(batch[input], weight); }
};

template <class A, class B>
struct Both {
  A a;
  B b;
};

template <class A, class B>
Both(A, B) -> Both<A, B>;

template <class A, class B>
struct Timed {
  A a;
  B b;
  double time = 0;
};

struct Twice : Primitive<Twice> {
  auto backward(const auto&, Nothing, const auto& g) const { return add(g.a, g.b); }
#ifdef WEFT_FAIL
  template <class X>
  auto forward(const auto&, const X& x) const {
    return Result{Timed<X, X>{x, x}, Nothing {}};
  }
#else
  auto forward(const auto&, const auto& x) const { return Result{Both{x, x}, Nothing{}}; }
#endif
};

struct Sum : Module<Sum> {
  auto forward(const auto& both) const { return both.a + both.b; }
};

struct Loss : Module<Loss> {
  Parameter<> weight;
  Loss(const auto& context, std::size_t width) : weight(context, "weight", {1, width}, ones) {}
  auto forward(const auto& x, const auto&) const { return sum_losses(matmul(x, weight)); }
};

struct Net {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return Stem(context / "stem", config.width); }, [] { return Twice(); }, [] { return Sum(); },
                 [=] { return Loss(context / "loss", config.width); });
  }
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: returns_an_object_in_a_chain
// A layer with its own backward, inside a Sequential, returns a struct with a member that is not a tensor.
// expect: this layer returns something else than a tensor, or a std::tuple or a struct of tensors
template <class X>
struct Timed {
  X x;
#ifdef WEFT_FAIL
  double time = 0;
#endif
};

struct Clock : Primitive<Clock> {
  auto forward(const auto&, const auto& x) const { return Result{Timed<std::remove_cvref_t<decltype(x)>>{x}, Nothing{}}; }
  auto backward(const auto&, Nothing, const auto& g) const { return g.x; }
};

struct Read : Module<Read> {
  auto forward(const auto& timed) const { return timed.x; }
};

auto go() {
  return testing::check_layer([](const auto&) { return Sequential(Clock(), Read()); }, {4, 8});
}

// section: without_result_as_block
// Such a layer as the block itself.
// expect: this layer's forward returns something else than a Result
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

struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t) {
    return Own{Parameter<>(context, "gain", {config.width}, ones)};
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: without_result_as_front
// A front with a forward that forgets its Result: there is no error about the blocks after it.
// expect: this layer's forward returns something else than a Result
// mention: Own
struct Own {
  Embedding table;
  auto forward(const auto& context, const auto& tokens) const {
#ifdef WEFT_FAIL
    return table.forward(context, tokens).output;
#else
    return table.forward(context, tokens);
#endif
  }
  auto backward(const auto& context, auto saved, const auto& g) { return weft::backward(table, context, std::move(saved), g); }
};

struct Model : models::Gpt {
  using Front = Own;
  using Back = LanguageHead<LayerNorm>;
  static Front make_front(const auto& context, const Config& config) {
    return Own{Embedding(context / "tokens", config.vocabulary, config.width)};
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table.table);
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  model.next_logits(batch.tokens);
  return model.train_step(batch);
}

// section: without_result_in_residual
// A Residual of a layer with a forward that forgets its Result, in training and for logits.
// expect: this layer's forward returns something else than a Result
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

struct Model : models::Gpt {
  using Block = Residual<Own>;
  static Block make_block(const auto& context, const Config& config, std::size_t) {
    const auto own = [&](const char* name) { return Own{Parameter<>(context / name, "gain", {config.width}, ones)}; };
    return Residual(own("own"));
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  model.logits(batch.tokens);
  return model.train_step(batch);
}

// section: nothing_for_real_back
// A back forgets its gradient: the blocks would be trained on the gradient of the loss.
// expect: returned Nothing for an input of real numbers
#ifdef WEFT_FAIL
constexpr bool forgets = true;
#else
constexpr bool forgets = false;
#endif

/// A language head.
struct Head {
  LanguageHead<LayerNorm> head;
  auto forward(const auto& context, const auto& x, const auto& targets) const { return head.forward(context, x, targets); }
  auto logits(const auto& context, const auto& x) const { return head.logits(context, x); }
  auto backward(const auto& context, auto saved, const auto& g) {
    auto dx = weft::backward(head, context, std::move(saved), g);
    if constexpr (forgets) return Nothing{};
    else return dx;
  }
};

struct Model {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = Head;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block{LayerNorm(context / "blocks" / std::to_string(index), config.width)};
  }
  static Back make_back(const auto& context, const Config& config, Front*) {
    return Back{LanguageHead<LayerNorm>(LayerNorm(context / "norm", config.width),
                                        Embedding(context / "tokens", config.vocabulary, config.width).table)};
  }
};

double go(World& world, const Batch& batch) {
  SingleDevice<Model> model(world.device(), {});
  return model.train_step(batch);
}

// section: nothing_for_real_block
// A block forgets its gradient: the gradient of its output would be passed on as that of its input.
// expect: returned Nothing for an input of real numbers
#ifdef WEFT_FAIL
constexpr bool forgets = true;
#else
constexpr bool forgets = false;
#endif

/// A layer norm.
struct Normed {
  LayerNorm norm;
  auto forward(const auto& context, const auto& x) const { return norm.forward(context, x); }
  auto backward(const auto& context, auto saved, const auto& g) {
    auto dx = weft::backward(norm, context, std::move(saved), g);
    if constexpr (forgets) return Nothing{};
    else return dx;
  }
};

struct Model {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Normed;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block{LayerNorm(context / "blocks" / std::to_string(index), config.width)};
  }
  static Back make_back(const auto& context, const Config& config, Front*) {
    return Back{LayerNorm(context / "norm", config.width), Embedding(context / "tokens", config.vocabulary, config.width).table};
  }
};

double go(World& world, const Batch& batch) {
  SingleDevice<Model> model(world.device(), {});
  return model.train_step(batch);
}

// section: nothing_for_real_chain
// A layer within a Sequential forgets its gradient: the layers before it would get none.
// expect: returned Nothing (for an input of real numbers|while that of another returned a gradient)
/// Twice its input.
struct Twice {
  auto forward(const auto&, const auto& x) const { return Result{add(x, x), Nothing{}}; }
#ifdef WEFT_FAIL
  auto backward(const auto&, const auto&, const auto&) { return Nothing{}; }
#else
  auto backward(const auto&, const auto&, const auto& g) { return add(g, g); }
#endif
};

auto go(const Root& context, X x) {
  Sequential layer(Gelu{}, Twice{}, Gelu{});
  auto step = weft::forward(layer, context, x);
  return backward(layer, context, std::move(step.saved), x);
}

// section: nothing_for_real_residual
// A layer within a Residual forgets its gradient: the skip connection's would count as the whole.
// expect: returned Nothing (for an input of real numbers|while that of another returned a gradient)
/// Twice its input.
struct Twice {
  auto forward(const auto&, const auto& x) const { return Result{add(x, x), Nothing{}}; }
#ifdef WEFT_FAIL
  auto backward(const auto&, const auto&, const auto&) { return Nothing{}; }
#else
  auto backward(const auto&, const auto&, const auto& g) { return add(g, g); }
#endif
};

auto go(const Root& context, X x) {
  Residual layer(Twice{});
  auto step = weft::forward(layer, context, x);
  return backward(layer, context, std::move(step.saved), x);
}

// section: residual_of_token_ids
// A residual around the token table would add its rows to token ids.
// expect: Residual adds a layer's output to its input, and this input is not Real
auto go(const Root& context, Tensor<std::int32_t, Kokkos::DefaultExecutionSpace> ids,
        Tensor<float, Kokkos::DefaultExecutionSpace> g) {
  Embedding table(context / "tokens", 16, 8);
  LayerNorm norm(context / "norm", 8);
#ifdef WEFT_FAIL
  Residual layer(Sequential(table, norm));
#else
  Sequential layer(table, Residual(norm));
#endif
  auto step = weft::forward(layer, context, ids);
  return backward(layer, context, std::move(step.saved), g);
}
