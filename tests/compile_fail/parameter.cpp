// SPDX-License-Identifier: Apache-2.0
// Parameters.
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

struct Loss : Module<Loss> {
  Parameter<> weight;
  Loss(const auto& context, std::size_t width) : weight(context, "weight", {1, width}, ones) {}
  auto forward(const auto& x, const auto&) const { return sum_losses(matmul(x, weight)); }
};

// section: made_in_a_step
// A forward makes a parameter, which would be drawn anew in each step. Layers make their parameters in their constructor.
// expect: weft: a layer or a Parameter is made while a step runs, so it would be drawn anew each time and never trained: make it in the constructor
// mention: parameter.cpp:
struct Scaled : Module<Scaled> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {};
  Parameter<> gain;
  Scaled(const auto& context, const Config&) : gain(context, "gain", {4}, ones) {}
  auto loss(const auto& batch) const {
    auto x = batch[input];
#ifdef WEFT_FAIL
    const Parameter<> late(x.context(), "late", {4}, ones);
    return mse(times_row(times_row(x, gain), late), x);
#else
    return mse(times_row(x, gain), x);
#endif
  }
};

double go(World& world, const Scaled::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Scaled> model(mesh, {});
  return model.train_step(batch);
}

// section: not_made
// A constructor that forgets a parameter.
// expect: a Parameter is made in the constructor of its layer, from the context, its name, its whole shape
struct Front : Module<Front> {
  Parameter<> weight;
#ifdef WEFT_FAIL
  Front(const auto&, std::size_t) {}
#else
  Front(const auto& context, std::size_t width) : weight(context, "weight", {width, width}, ones) {}
#endif
  auto forward(const auto& batch) const { return matmul(batch[input], weight); }
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

// section: of_an_axis
// An axis is not a rule: it does not name the sharded dim.
// expect: Parameter's template parameters must be rules, Shard<axis, dim>.*an axis alone
struct Own {
#ifdef WEFT_FAIL
  Parameter<tp> gain;
#else
  Parameter<> gain;
#endif
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

struct Model : models::Gpt {
  using Block = Residual<Sequential<LayerNorm, Own>>;
  static Block make_block(const auto& context, const Config& config, std::size_t) {
    return Residual(Sequential(LayerNorm(context / "norm", config.width), Own{{context, "gain", {config.width}, ones}}));
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: rule_for_dp
// A rule for the data axis: its wrapper sums all gradients, and shards state itself.
// expect: a Parameter's rule must be for tp, cp or etp
#ifdef WEFT_FAIL
using Matrix = Parameter<Shard<dp, 0>>;
#else
using Matrix = Parameter<>;
#endif

Matrix go(const Context<Compute<Kokkos::DefaultExecutionSpace, float>, Bind<dp>>& context) {
  return Matrix(context, "weight", {4, 4}, zeros);
}

// section: rules_in_force
// Rules for two axes that are both in force: a parameter is cut along one.
// expect: a Parameter has rules for two axes that are in force here
using Both = Context<Compute<Kokkos::DefaultExecutionSpace, float>, Bind<cp, Shard<cp, 0>>, Bind<tp>>;

#ifdef WEFT_FAIL
using Matrix = Parameter<Shard<tp, 0>, Shard<cp, 1>>;
#else
using Matrix = Parameter<Shard<tp, 0>, Shard<etp, 1>>;
#endif

Matrix go(const Both& context) { return Matrix(context, "weight", {4, 4}, zeros); }

// section: two_rules
// Two rules for one axis: a rank holds one piece.
// expect: a Parameter has two rules for one axis
#ifdef WEFT_FAIL
using Matrix = Parameter<Shard<tp, 0>, Shard<tp, 1>>;
#else
using Matrix = Parameter<Shard<tp, 0>>;
#endif

Matrix go(const Context<Compute<Kokkos::DefaultExecutionSpace, float>, Bind<tp>>& context) {
  return Matrix(context, "weight", {4, 4}, zeros);
}

// section: without_a_name
// A parameter made from the context and its shape alone.
// expect: a Parameter is made in the constructor of its layer, from the context, its name, its whole shape
struct Front : Module<Front> {
  Parameter<> weight;
#ifdef WEFT_FAIL
  Front(const auto& context, std::size_t width) : weight(context, {width, width}) {}
#else
  Front(const auto& context, std::size_t width) : weight(context, "weight", {width, width}, ones) {}
#endif
  auto forward(const auto& batch) const { return matmul(batch[input], weight); }
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
