// SPDX-License-Identifier: Apache-2.0
// Modules whose forward is not one.
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

// section: misspelled_operation
// No operation has this name: the compiler's own error is the only one.
// expect: .tahn. was not declared in this scope; did you mean .tanh.|use of undeclared identifier .tahn.
struct Own : Module<Own> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Own(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return exp(tahn(layer(x))); }
#else
  auto forward(const auto& x) const { return exp(tanh(layer(x))); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const Own::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Own> model(mesh, Own::Config{});
  return model.train_step(batch);
}

// section: add_norm_of_terms
// A sum whose second term is a term of a sum over tp itself, called in front of a norm.
// expect: add: the two terms are placed differently; bring one to the other.s layout
// mention: module_forward.cpp:
struct Own : Module<Own> {
  LayerNorm norm;
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  Own(const auto& context, std::size_t width)
      : norm(context / "norm", width),
        up(context, "up", {width, width}, normal(0.1)),
        down(context, "down", {width, width}, normal(0.1)) {}
  auto forward(const auto& x) const {
    auto branch = matmul(matmul(to<Replicated<tp>>(x), up), down);
#ifdef WEFT_FAIL
    const auto [sum, normed] = add_norm(norm, x, branch);
#else
    const auto [sum, normed] = add_norm(norm, x, to_layout_of(x, branch));
#endif
    return sum + normed;
  }
};

struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t) { return Own(context, config.width); }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: adds_partial
// A Module that adds a term of a sum to a whole value.
// expect: add: the two terms are placed differently; bring one to the other.s layout
// mention: module_forward.cpp:
struct Own : Module<Own> {
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  Own(const auto& context, std::size_t width)
      : up(context, "up", {width, width}, normal(0.1)), down(context, "down", {width, width}, normal(0.1)) {}
  auto forward(const auto& x) const {
    auto y = matmul(Gelu()(matmul(to<Replicated<tp>>(x), up)), down);
#ifdef WEFT_FAIL
    return x + y;
#else
    return x + to_layout_of(x, y);
#endif
  }
};

struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t) { return Own(context, config.width); }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: error_in_a_nested_forward
// A C++ mistake in the forward of a nested Module gives only the compiler's error.
// expect: no member named .no_such_member
// mention: module_forward.cpp:
struct Inner : Module<Inner> {
  LayerNorm norm;
  Inner(const auto& context, std::size_t width) : norm(context, width) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return norm(x).no_such_member();
#else
    return norm(x);
#endif
  }
};

struct Own : Module<Own> {
  Inner inner;
  Own(const auto& context, std::size_t width) : inner(context, width) {}
  auto forward(const auto& x) const { return inner(x); }
};

struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t) { return Own(context, config.width); }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: not_const
// A forward changes no member.
// expect: forward is not const
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {4, 1, 3, 3}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) { return silu(layer(x)); }
#else
  auto forward(const auto& x) const { return silu(layer(x)); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: of_a_tensor
// A forward is a template, since its Variables' types depend on the mesh.
// expect: forward takes tensors of one type
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {4, 1, 3, 3}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const Tensor<float>& x) const { return silu(layer(x)); }
#else
  auto forward(const auto& x) const { return silu(layer(x)); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: returns_a_bare_tensor
// A forward that takes and returns tensors.
// expect: forward takes tensors of one type
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
#ifdef WEFT_FAIL
  Tensor<float> forward(const Tensor<float>& x) const { return silu(layer(x)); }
#else
  auto forward(const auto& x) const { return silu(layer(x)); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: returns_nothing
// A forward without a return.
// expect: this Module.s forward returns nothing: end it with
struct Front : Module<Front> {
  Parameter<> weight;
  Front(const auto& context, std::size_t width) : weight(context, "weight", {width, width}, ones) {}
  auto forward(const auto& batch) const { return matmul(batch[input], weight); }
};

struct Loss : Module<Loss> {
  Parameter<> weight;
  Loss(const auto& context, std::size_t width) : weight(context, "weight", {1, width}, ones) {}
#ifdef WEFT_FAIL
  void forward(const auto& x, const auto&) const { sum_losses(matmul(x, weight)); }
#else
  auto forward(const auto& x, const auto&) const { return sum_losses(matmul(x, weight)); }
#endif
};

struct Net {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return Front(context / "front", config.width); }, [=] { return Loss(context / "loss", config.width); });
  }
};

void go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  model.train_step(batch);
}

// section: takes_context
// A Module whose forward takes a context, like a layer with its own backward.
// expect: this Module.s forward cannot be called with its inputs: write
// mention: module_forward.cpp:
struct Own : Module<Own> {
  LayerNorm norm;
  Own(const auto& context, std::size_t width) : norm(context, width) {}
#ifdef WEFT_FAIL
  auto forward(const auto&, const auto& x) const { return norm(x); }
#else
  auto forward(const auto& x) const { return norm(x); }
#endif
};

struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t) { return Own(context, config.width); }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: gelu_of_partial
// A Module that applies a GELU to a term of a sum.
// expect: this operation is not linear, but its input is Partial
// mention: module_forward.cpp:
struct Own : Module<Own> {
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  Own(const auto& context, std::size_t width)
      : up(context, "up", {width, width}, normal(0.1)), down(context, "down", {width, width}, normal(0.1)) {}
  auto forward(const auto& x) const {
    auto y = matmul(matmul(to<Replicated<tp>>(x), up), down);
#ifdef WEFT_FAIL
    return x + to_layout_of(x, Gelu()(y));
#else
    return x + Gelu()(to_layout_of(x, y));
#endif
  }
};

struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t) { return Own(context, config.width); }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: returns_a_tensor
// A Module that returns a tensor, through which no gradient goes.
// expect: this Module.s forward returns something else than a Variable
// mention: module_forward.cpp:
struct Own : Module<Own> {
  LayerNorm norm;
  Own(const auto& context, std::size_t width) : norm(context, width) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return norm(x).value();
#else
    return norm(x);
#endif
  }
};

struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t) { return Own(context, config.width); }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: returns_an_object
// A Module's struct with a member that is no Variable.
// expect: this Module.s forward returns an object that is not made of Variables alone
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

struct Twice : Module<Twice> {
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return Timed<std::remove_cvref_t<decltype(x)>, std::remove_cvref_t<decltype(x)>>{x, x}; }
#else
  auto forward(const auto& x) const { return Both{x, x}; }
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

// section: temporary_parameter
// A Module that multiplies by a Parameter that no longer exists in backward.
// expect: on a Parameter that is gone when backward asks for it
// mention: module_forward.cpp:
struct Own : Module<Own> {
  Parameter<> table, gain;
  Own(const auto& context, std::size_t width)
      : table(context, "table", {width, width}, normal(0.1)), gain(context, "gain", {width}, ones) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return x + relu(matmul(x, Parameter<>(table)) * gain);
#else
    return x + relu(matmul(x, table) * gain);
#endif
  }
};

struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t i) {
    return Own(context / std::to_string(i), config.width);
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Model> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: to_of_a_value
// A Module that moves x.value(), a constant, instead of x.
// expect: to<Placement>.tensor. without a context: in a Module.s forward give it the Variable
// mention: module_forward.cpp:
struct Inner : Module<Inner> {
  LayerNorm norm;
  Inner(const auto& context, std::size_t width) : norm(context, width) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return to<Invariant<tp>>(norm(x).value());
#else
    return to<Invariant<tp>>(norm(x));
#endif
  }
};

struct Own : Module<Own> {
  Inner inner;
  Own(const auto& context, std::size_t width) : inner(context, width) {}
  auto forward(const auto& x) const { return inner(x); }
};

struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t) { return Own(context, config.width); }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: without_forward
// A Module without a forward.
// expect: this Module.s forward cannot be called with its inputs: write
// mention: module_forward.cpp:
struct Own : Module<Own> {
  LayerNorm norm;
  Own(const auto& context, std::size_t width) : norm(context, width) {}
#ifndef WEFT_FAIL
  auto forward(const auto& x) const { return norm(x); }
#endif
};

struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t) { return Own(context, config.width); }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: without_to
// A Module whose column-parallel product is not entered with to<Replicated<tp>>.
// expect: matmul of an Invariant operand with a sharded or Replicated one: enter the parallel region first
// mention: module_forward.cpp:
struct Own : Module<Own> {
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  Own(const auto& context, std::size_t width)
      : up(context, "up", {width, width}, normal(0.1)), down(context, "down", {width, width}, normal(0.1)) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    auto inside = x;
#else
    auto inside = to<Replicated<tp>>(x);
#endif
    return x + to_layout_of(x, matmul(Gelu()(matmul(inside, up)), down));
  }
};

struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t) { return Own(context, config.width); }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
