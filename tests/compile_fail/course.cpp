// SPDX-License-Identifier: Apache-2.0
// The wrong turns of the lessons in docs/course, which show the wrong lines and the message.
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"point", float> point;
inline constexpr data::Field<"wanted", float> wanted;

const models::GptConfig small{.vocabulary = 256, .layers = 2, .width = 32, .heads = 4, .sequence = 16};

// section: no_wrapper
// expect: an axis that no wrapper of the model uses, so its ranks would all do the same work
double go(World& world, const Batch& batch) {
#ifdef WEFT_FAIL
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<models::Gpt> model(mesh, small);
#else
  Mesh<dp> mesh(world);
  DataParallel<models::Gpt> model(mesh, small);
#endif
  return model.train_step(batch);
}

// section: order
// expect: the wrapper inside TensorParallel belongs outside it
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
#ifdef WEFT_FAIL
  TensorParallel<DataParallel<models::Gpt>> model(mesh, small);
#else
  DataParallel<TensorParallel<models::Gpt>> model(mesh, small);
#endif
  return model.train_step(batch);
}

// section: method
// expect: a value has no member relu
struct Mlp : Module<Mlp> {
  using scalar = float;
  using Batch = FieldBatch<point>;
  struct Config {};
  Linear<> up, down;
  Mlp(const auto& context, const Config&) : up(context / "up", 8, 32), down(context / "down", 32, 8) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return down(up(x).relu()); }
#else
  auto forward(const auto& x) const { return down(relu(up(x))); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[point]), batch[point]); }
};

double go(World& world, const Mlp::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Mlp> model(mesh, {});
  return model.train_step(batch);
}

// section: no_entry
// expect: matmul of an Invariant operand with a sharded or Replicated one: enter the parallel region first
struct CutMlp : Module<CutMlp> {
  using scalar = float;
  using Batch = FieldBatch<point>;
  struct Config {};
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  CutMlp(const auto& context, const Config&)
      : up(context, "up", {32, 8}, normal(0.3)), down(context, "down", {8, 32}, normal(0.3)) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    auto hidden = gelu_erf(matmul(x, up));
#else
    auto hidden = gelu_erf(matmul(to<Replicated<tp>>(x), up));
#endif
    return to<Invariant<tp>>(matmul(hidden, down));
  }
  auto loss(const auto& batch) const {
    auto x = to<Invariant<tp>>(batch[point]);
    return mse(forward(x), x);
  }
};

double go(World& world, const CutMlp::Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<CutMlp>> model(mesh, {});
  return model.train_step(batch);
}

// section: no_sum
// expect: add: the two terms are placed differently; bring one to the other.s layout
struct CutMlp : Module<CutMlp> {
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  CutMlp(const auto& context, std::size_t width)
      : up(context, "up", {4 * width, width}, normal(0.3)), down(context, "down", {width, 4 * width}, normal(0.3)) {}
  auto forward(const auto& x) const {
    auto term = matmul(gelu_erf(matmul(to<Replicated<tp>>(x), up)), down);
#ifdef WEFT_FAIL
    return term;
#else
    return to<Invariant<tp>>(term);
#endif
  }
};
struct Block : Module<Block> {
  using scalar = float;
  using Batch = FieldBatch<point>;
  struct Config {};
  LayerNorm norm;
  CutMlp mlp;
  Block(const auto& context, const Config&) : norm(context / "norm", 8), mlp(context / "mlp", 8) {}
  auto forward(const auto& x) const { return x + mlp(norm(x)); }
  auto loss(const auto& batch) const {
    auto x = to<Invariant<tp>>(batch[point]);
    return mse(forward(x), x);
  }
};

double go(World& world, const Block::Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Block>> model(mesh, {});
  return model.train_step(batch);
}

// section: norm_of_term
// expect: this operation is not linear, but its input is Partial
struct CutMlp : Module<CutMlp> {
  using scalar = float;
  using Batch = FieldBatch<point>;
  struct Config {};
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  LayerNorm norm;
  CutMlp(const auto& context, const Config&)
      : up(context, "up", {32, 8}, normal(0.3)), down(context, "down", {8, 32}, normal(0.3)), norm(context / "norm", 8) {}
  auto forward(const auto& x) const {
    auto hidden = gelu_erf(matmul(to<Replicated<tp>>(x), up));
#ifdef WEFT_FAIL
    return norm(matmul(hidden, down));
#else
    return norm(to<Invariant<tp>>(matmul(hidden, down)));
#endif
  }
  auto loss(const auto& batch) const {
    auto x = to<Invariant<tp>>(batch[point]);
    return mse(forward(x), x);
  }
};

double go(World& world, const CutMlp::Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<CutMlp>> model(mesh, {});
  return model.train_step(batch);
}

// section: divided
// expect: a loss divided by a number
struct Regression : Module<Regression> {
  using scalar = float;
  using Batch = FieldBatch<point, wanted>;
  struct Config {};
  Linear<> layer;
  Regression(const auto& context, const Config&) : layer(context / "layer", 2, 1) {}
  auto forward(const auto& x) const { return layer(x); }
#ifdef WEFT_FAIL
  auto loss(const auto& batch) const { return mse(forward(batch[point]), batch[wanted]) / 2.0; }
#else
  auto loss(const auto& batch) const { return 0.5 * mse(forward(batch[point]), batch[wanted]); }
#endif
};

double go(World& world, const Regression::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Regression> model(mesh, {});
  return model.train_step(batch);
}

// section: no_field
// expect: the batch of this model has no such field
struct Regression : Module<Regression> {
  using scalar = float;
#ifdef WEFT_FAIL
  using Batch = FieldBatch<point>;
#else
  using Batch = FieldBatch<point, wanted>;
#endif
  struct Config {};
  Linear<> layer;
  Regression(const auto& context, const Config&) : layer(context / "layer", 2, 1) {}
  auto loss(const auto& batch) const { return mse(layer(batch[point]), batch[wanted]); }
};

double go(World& world, const Regression::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Regression> model(mesh, {});
  return model.train_step(batch);
}
