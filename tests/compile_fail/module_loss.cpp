// SPDX-License-Identifier: Apache-2.0
// Modules whose loss is not one.
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;
inline constexpr data::Field<"image", float> image;

// section: error_in_a_loss
// A C++ mistake in a Module's loss gives only the compiler's error, and none of weft's.
// expect: power
struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {};
  Linear<> layer;
  Autoencoder(const auto& context, const Config&) : layer(context / "layer", 4, 4) {}
  auto loss(const auto& batch) const {
    auto x = layer(batch[input]);
#ifdef WEFT_FAIL
    return sum_losses(x.power(2));
#else
    return sum_losses(square(x));
#endif
  }
};

double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}

// section: field_of_another_batch
// A Module's loss that uses a field which its batch lacks.
// expect: the batch of this model has no such field
// mention: label
inline constexpr data::Field<"label", float> label;

struct Own : Module<Own> {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
#ifdef WEFT_FAIL
  using Batch = FieldBatch<input>;
#else
  using Batch = FieldBatch<input, label>;
#endif
  Parameter<> weight;
  Own(const auto& context, const Config& config) : weight(context, "weight", {config.width, config.width}, ones) {}
  auto loss(const auto& batch) const { return mse(matmul(batch[input], weight), batch[label]); }
};

double go(World& world, const Own::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Own> model(mesh, {});
  return model.train_step(batch);
}

// section: not_const
// expect: this Module's loss cannot be called with the fields of its batch
// mention: auto loss\(const auto& batch\) const
struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {};
  Linear<> layer;
  Autoencoder(const auto& context, const Config&) : layer(context / "layer", 4, 4) {}
#ifdef WEFT_FAIL
  auto loss(const auto& batch) { return mse(layer(batch[input]), batch[input]); }
#else
  auto loss(const auto& batch) const { return mse(layer(batch[input]), batch[input]); }
#endif
};

double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}

// section: of_a_refused_value
// A loss of a value that the compiler has refused: there is one error, and none about the loss.
// expect: this operation is not linear, but its input is Partial.*to<Invariant<axis>>.x.
// mention: module_loss.cpp:
inline constexpr data::Field<"label", std::int32_t> label;

struct Own : Module<Own> {
  using scalar = float;
  using Batch = FieldBatch<image, label>;
  struct Config {};
  Linear<> linear;
  Own(const auto& context, const Config&) : linear(context, 4, 4) {}
  auto forward(const auto& x) const { return linear(x); }
  auto loss(const auto& batch) const {
#ifdef WEFT_FAIL
    return mse(forward(batch[image]), forward(batch[image]) * 2 + exp(to<Partial<dp>>(batch[image])));
#else
    return cross_entropy(forward(batch[image]), batch[label]);
#endif
  }
};

double go(World& world, const Own::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Own> model(mesh, {});
  return model.train_step(batch);
}

// section: returns_a_number
// A loss that is declared to be a number.
// expect: this Module.s loss returns a number or nothing
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
  auto forward(const auto& x) const { return silu(layer(x)); }
#ifdef WEFT_FAIL
  double loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
#else
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
#endif
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: returns_a_variable
// A Module's loss that returns the result of its forward.
// expect: the loss.batch. of this Module must return a loss
// mention: module_loss.cpp:
inline constexpr data::Field<"label", std::int32_t> label;

struct Own : Module<Own> {
  using scalar = float;
  using Batch = FieldBatch<image, label>;
  struct Config {};
  Linear<> linear;
  Own(const auto& context, const Config&) : linear(context, 4, 4) {}
  auto forward(const auto& x) const { return linear(x); }
  auto loss(const auto& batch) const {
#ifdef WEFT_FAIL
    return forward(batch[image]);
#else
    return cross_entropy(forward(batch[image]), batch[label]);
#endif
  }
};

double go(World& world, const Own::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Own> model(mesh, {});
  return model.train_step(batch);
}

// section: without_forward
// A loss that calls a forward which the Module lacks.
// expect: there is no operation forward: this class has no forward
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
#ifdef WEFT_FAIL
  // no forward
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

// section: without_loss
// train_step of a Module without a loss.
// expect: train_step and evaluate of a Module without a loss
// mention: Own
struct Own : Module<Own> {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  Parameter<> weight;
  Own(const auto& context, const Config& config) : weight(context, "weight", {1, config.width}, ones) {}
  auto forward(const auto& x) const { return matmul(x, weight); }
#ifndef WEFT_FAIL
  auto loss(const auto& batch) const { return sum_losses(forward(batch[input])); }
#endif
};

double go(World& world, const Own::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Own> model(mesh, {});
  return model.train_step(batch);
}
