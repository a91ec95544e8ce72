// SPDX-License-Identifier: Apache-2.0
// Models that do not fit their wrapper.
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

// section: check_batch_without_config
// A check_batch that takes only the batch: it would never be called.
// expect: this model's check_batch cannot be called with its config and batch
struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {};
  Linear<> layer;
  Autoencoder(const auto& context, const Config&) : layer(context / "layer", 4, 4) {}
  auto loss(const auto& batch) const { return mse(layer(batch[input]), batch[input]); }
#ifdef WEFT_FAIL
  static void check_batch(const Batch& batch) { batch.check(); }
#else
  static void check_batch(const Config&, const Batch& batch) { batch.check(); }
#endif
};

double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}

// section: logits_of_a_back_without
// Logits of a model whose back has only a loss.
// expect: logits of a model whose Back has none: write `auto logits
// mention: Own
struct LossAlone {
  LanguageHead<LayerNorm> head;
  auto forward(const auto& context, const auto& x, const auto& targets) const { return head.forward(context, x, targets); }
  auto backward_input(const auto& context, auto saved, const auto& g) {
    return weft::backward_input(head, context, std::move(saved), g);
  }
  void backward_weight(const auto& context, auto deferred) { weft::backward_weight(head, context, std::move(deferred)); }
#ifndef WEFT_FAIL
  auto logits(const auto& context, const auto& x) const { return head.logits(context, x); }
#endif
};

struct Own : models::Gpt {
  using Front = Embedding;
  using Back = LossAlone;
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back{LanguageHead<LayerNorm>(LayerNorm(context / "norm", config.width), front->table)};
  }
};

std::vector<float> go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Own>> model(mesh, {});
  return model.next_logits(batch.tokens);
}

// section: logits_without_vocabulary
// Logits of a model that does not declare its vocabulary.
// expect: logits of a model that does not declare its vocabulary: write `static std::size_t vocabulary
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
#ifndef WEFT_FAIL
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
#endif
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

std::vector<float> go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Own>> model(mesh, {});
  return model.next_logits(batch.tokens);
}

// section: made_without_config
// A model constructed only from its mesh.
// expect: a model is made with its config: DataParallel<Model> model.mesh
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
  auto forward(const auto& x) const { return silu(layer(x)); }
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
#ifdef WEFT_FAIL
  DataParallel<Net> model(mesh);
  return model.train_step(batch);
#else
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
#endif
}

// section: without_a_wrapper
// A Module is trained without a wrapper.
// expect: a Module is trained in a wrapper
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
  auto forward(const auto& x) const { return silu(layer(x)); }
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
#ifdef WEFT_FAIL
  Net model(mesh, {.width = 4});
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  const double loss = model.train_step(batch);
  optimizer.step();
  return loss;
#else
  DataParallel<Net> model(mesh, {.width = 4});
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  const double loss = model.train_step(batch);
  optimizer.step();
  return loss;
#endif
}

// section: without_batch
// A model that does not name the type of its batches.
// expect: the batch of this model has no such field.*using Batch = FieldBatch
struct Net : Module<Net> {
  using scalar = float;
#ifdef WEFT_FAIL
  // no Batch
#else
  using Batch = FieldBatch<input>;
#endif
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
  auto forward(const auto& x) const { return silu(layer(x)); }
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: without_block_type
// A model on one rank whose block has no name.
// expect: this model has no Block.*write `using Block
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
#ifndef WEFT_FAIL
  using Block = Residual<LayerNorm>;
#endif
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Residual<LayerNorm> make_block(const auto& context, const Config& config, std::size_t index) {
    return Residual<LayerNorm>(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

double go(World& world, const Batch& batch) {
  SingleDevice<Own> model(world.device(), {});
  optim::AdamW optimizer(model);
  const double loss = model.train_step(batch);
  optimizer.step();
  return loss;
}

// section: without_make_front
// A model that makes no front.
// expect: this model has no make_front: write `static Front make_front\(const auto& context, const Config& config\)`
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
#ifndef WEFT_FAIL
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
#endif
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

double go(World& world, const Batch& batch) {
  SingleDevice<Own> model(world.device(), {});
  optim::AdamW optimizer(model);
  const double loss = model.train_step(batch);
  optimizer.step();
  return loss;
}

// section: predict_of_a_loss_alone
// predict of a stack whose last unit only returns its loss.
// expect: predict of a model whose last unit has only a loss
// mention: Loss
struct Stem : Module<Stem> {
  Parameter<> weight;
  Stem(const auto& context, std::size_t width) : weight(context, "weight", {width, width}, ones) {}
  auto forward(const auto& batch) const { return matmul(batch[input], weight); }
};

struct Loss : Module<Loss> {
  Parameter<> weight;
  Loss(const auto& context, std::size_t width) : weight(context, "weight", {1, width}, ones) {}
#ifndef WEFT_FAIL
  auto predict(const auto& x) const { return matmul(x, weight); }
#endif
  auto forward(const auto& x, const auto&) const { return sum_losses(matmul(x, weight)); }
};

struct Net {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return Stem(context / "stem", config.width); }, [=] { return Loss(context / "loss", config.width); });
  }
};

Prediction go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.predict(batch);
}
