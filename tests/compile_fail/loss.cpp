// SPDX-License-Identifier: Apache-2.0
// Losses and their arithmetic.
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/losses.hpp>
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;
inline constexpr data::Field<"image", float> image;
inline constexpr data::Field<"label", std::int32_t> label;
using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;

// section: count_of_another_batch
// A count that does not accept the model's batch.
// expect: this model.s count cannot be called with its batch
struct Stem : Module<Stem> {
  Parameter<> weight;
  Stem(const auto& context, std::size_t width) : weight(context, "weight", {width, width}, ones) {}
  auto forward(const auto& batch) const { return matmul(batch[input], weight); }
};

struct Twice : Module<Twice> {
  auto forward(const auto& x) const { return std::tuple(x, x); }
};

struct Sum : Module<Sum> {
  auto forward(const auto& x, const auto& y) const { return x + y; }
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
    return Stack([=] { return Stem(context / "stem", config.width); }, [=] { return Loss(context / "loss", config.width); });
  }
#ifdef WEFT_FAIL
  static std::size_t count(const Config&) { return 1; }
#else
  static std::size_t count(const Batch& batch) { return batch.samples; }
#endif
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: cross_entropy_of_real_labels
// Labels are ids of classes.
// expect: ids and labels are whole numbers
// mention: loss.cpp:
struct Own : Module<Own> {
  using scalar = float;
  using Batch = FieldBatch<image, label>;
  struct Config {};
  Linear<> linear;
  Own(const auto& context, const Config&) : linear(context, 4, 4) {}
  auto forward(const auto& x) const { return linear(x); }
  auto loss(const auto& batch) const {
#ifdef WEFT_FAIL
    return cross_entropy(forward(batch[image]), sum<1>(batch[image]));
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

// section: cross_entropy_of_whole_numbers
// Labels in the place of the logits.
// expect: cross_entropy of logits that are whole numbers.*the logits first and the labels second
// mention: loss.cpp:
struct Own : Module<Own> {
  using scalar = float;
  using Batch = FieldBatch<image, label>;
  struct Config {};
  Linear<> linear;
  Own(const auto& context, const Config&) : linear(context, 4, 4) {}
  auto forward(const auto& x) const { return linear(x); }
  auto loss(const auto& batch) const {
#ifdef WEFT_FAIL
    return cross_entropy(batch[label], batch[label]);
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

// section: logits_that_another_axis_cuts
// Only tp's parts of the vocabulary are summed: with another axis each rank would take the softmax of its own columns.
// expect: no other axis may cut the vocabulary
// mention: to<Invariant<axis>>
struct columns : UserAxis<0> {
  static constexpr std::string_view name = "columns";
};

using Over = decltype(std::declval<Root>().with<Invariant<columns>>(columns{}, Communicator()));

template <class T, class... P>
using X = Tensor<T, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(const Over& context, X<float, Shard<columns, 1>> logits, X<std::int32_t, Invariant<columns>> targets) {
  return cross_entropy(context, logits, targets, 8);
}
#else
auto go(const Over& context, X<float, Shard<columns, 1>> logits, X<std::int32_t, Invariant<columns>> targets) {
  return cross_entropy(context, to<Invariant<columns>>(context, logits), targets, 8);
}
#endif

// section: divided_by_a_count
// A Module divides its loss by its number of samples: weft would divide again, and the number differs between layouts.
// expect: a loss divided by a number
// mention: 0\.5 \* loss
struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Autoencoder(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
  auto loss(const auto& batch) const {
    auto x = batch[input];
#ifdef WEFT_FAIL
    return mse(layer(x), x) / double(x.shape()[0]);
#else
    return 0.5 * mse(layer(x), x);
#endif
  }
};

double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}

// section: is_a_mean
// A back divides in its forward by its own count: weft would divide again, and a mean of means differs between layouts.
// expect: must return its loss as a LossSum: sum_losses
struct SquareHead {
  LayerNorm norm;
  auto forward(const auto& context, const auto& x, const auto& targets) const {
    auto normed = norm.forward(context, x);
    Tensor<double, Kokkos::DefaultExecutionSpace, Shard<dp, 0>> losses(x.device(), {x.rows()});
    for (std::size_t row = 0; row < x.rows(); ++row) losses.data()[row] = double(normed.output.data()[row * x.columns()]);
#ifdef WEFT_FAIL
    Tensor<double, Kokkos::DefaultExecutionSpace, Partial<dp>> mean(x.device(), {1});
    for (std::size_t row = 0; row < x.rows(); ++row) mean.data()[0] += losses.data()[row] / double(x.rows());
    return Result{mean, std::move(normed.saved)};
#else
    return Result{sum_losses(context, losses, targets), std::move(normed.saved)};
#endif
  }
  auto logits(const auto&, const auto& x) const { return x; }
  template <class Context, class S, class G>
  auto backward_input(const Context& context, S saved, const G& g) {
    Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>> dn(g.device(), {1, 1});
    return weft::backward_input(norm, context, std::move(saved), dn);
  }
  void backward_weight(const auto& context, auto deferred) { weft::backward_weight(norm, context, std::move(deferred)); }
};

struct Model : models::Gpt {
  using Back = SquareHead;
  static Back make_back(const auto& context, const Config& config, Front*) { return {LayerNorm(context / "norm", config.width)}; }
};

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Model> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: of_terms
// A squared error of terms is no term of the squared error.
// expect: the loss of a Partial prediction
// mention: to<Invariant<axis>>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Partial<tp>> x, X<Invariant<tp>> y) { return mse(x, y); }
#else
auto go(const Over& context, X<Partial<tp>> x, X<Invariant<tp>> y) { return mse(to<Invariant<tp>>(context, x), y); }
#endif

// section: over_a_loss
// A loss is divided by another one.
// expect: operator/ of a loss and a value
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
  auto loss(const auto& batch) const {
    return mse(forward(batch[input]), batch[input]) / mse(batch[input], batch[input].detach());
  }
#else
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
#endif
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: times_a_count
// A Module multiplies its loss by one over its number of samples, a number that is known only during the step. Weights of losses
// are constants, and numbers of the config that the Module stores as a LossWeight.
// expect: call to (consteval|non-.constexpr.) function
// mention: LossWeight|x.shape
struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
    double weight = 0.5;
  };
  Linear<> layer;
  LossWeight weight;
  Autoencoder(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), weight(context, config.weight) {}
  auto loss(const auto& batch) const {
    auto x = batch[input];
#ifdef WEFT_FAIL
    return mse(layer(x), x) * (1.0 / double(x.shape()[0]));
#else
    return weight * mse(layer(x), x) + 0.5 * mse(layer(x), x) * 2 - mse(layer(x), x) * (1.0 / 3);
#endif
  }
};

double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}

// section: times_a_parameter
// A loss is weighted by a parameter.
// expect: operator. of a loss and a value
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
  auto loss(const auto& batch) const { return layer.weight * mse(forward(batch[input]), batch[input]); }
#else
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
#endif
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: times_a_value
// A loss is weighted by a value of the batch.
// expect: operator. of a loss and a value: a loss is a sum over samples, which has constant weights
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
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]) * sum_all(batch[input]); }
#else
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
#endif
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: weight_made_in_a_step
// A loss makes its weight of the batch's number of samples, by which weft divides once.
// expect: weft: a LossWeight is made while a step runs, so it may depend on the batch, by whose count weft divides the loss once: make it in the Module's constructor
// mention: loss.cpp:
struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    double weight = 0.5;
  };
  Linear<> layer;
  LossWeight weight;
  Autoencoder(const auto& context, const Config& config) : layer(context / "layer", 4, 4), weight(context, config.weight) {}
  auto loss(const auto& batch) const {
    auto x = batch[input];
#ifdef WEFT_FAIL
    return LossWeight(x.context(), 1 / double(x.shape()[0])) * mse(layer(x), x);
#else
    return weight * mse(layer(x), x);
#endif
  }
};

double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}

// section: mean_of_a_loss
// A loss is a sum over samples already.
// expect: mean of a loss, which is a sum over samples
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
  auto loss(const auto& batch) const { return mean(mse(forward(batch[input]), batch[input])); }
#else
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
#endif
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: mse_of_whole_numbers
// Labels in the place of the predictions.
// expect: this loss.s predictions are whole numbers
// mention: loss.cpp:
struct Own : Module<Own> {
  using scalar = float;
  using Batch = FieldBatch<image, label>;
  struct Config {};
  Linear<> linear;
  Own(const auto& context, const Config&) : linear(context, 4, 4) {}
  auto forward(const auto& x) const { return linear(x); }
  auto loss(const auto& batch) const {
#ifdef WEFT_FAIL
    return mse(batch[label], batch[label]);
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

// section: number_added_to_a_loss
// A number is added to a loss.
// expect: operator.: a number beside a loss
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
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]) + 1; }
#else
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
#endif
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: number_added_to_terms
// Every rank would add the number to its term.
// expect: adding a number to a Partial tensor
// mention: to<Invariant<axis>>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Partial<tp>> x) { return x + 1; }
#else
auto go(const Over& context, X<Partial<tp>> x) { return to<Invariant<tp>>(context, x) + 1; }
#endif

// section: replicated_logits
// Whole logits on every rank of tp: the softmax would count each term tp times (Megatron-LM#7452).
// expect: logits sharded along the vocabulary
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
auto go(const Both& context, X logits,
        Tensor<std::int32_t, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Replicated<tp>> targets) {
  return cross_entropy(context, logits, targets, 8);
}
#else
auto go(const Both& context, X logits,
        Tensor<std::int32_t, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Replicated<tp>> targets) {
  return cross_entropy(context, to<Shard<tp, 1>>(context, logits), targets, 8);
}
#endif

// section: sum_losses_of_weights
// Weights of losses in the place of targets would decide by their signs which losses count.
// expect: sum_losses: targets are whole numbers
// mention: losses \* weights
inline constexpr data::Field<"x", float> values;
inline constexpr data::Field<"weight", float> weights;

struct Model : Module<Model> {
  using scalar = float;
  using Batch = FieldBatch<values, weights>;
  struct Config {};
  Linear<> linear;
  Model(const auto& context, const Config&) : linear(context / "linear", 3, 1) {}
  auto forward(const auto& x) const { return linear(x); }
  auto loss(const auto& batch) const {
    const auto losses = sum<1>(square(forward(batch[values])));
#ifdef WEFT_FAIL
    return sum_losses(losses, batch[weights]);
#else
    return sum_losses(losses * batch[weights]);
#endif
  }
};

double go(World& world, const Model::Batch& batch) {
  SingleDevice<Model> model(world.device(), Model::Config{});
  return model.train_step(batch);
}

// section: sum_losses_of_whole_numbers
// A loss without a gradient.
// expect: sum_losses of whole numbers, which have no gradient
// mention: loss.cpp:
struct Own : Module<Own> {
  using scalar = float;
  using Batch = FieldBatch<image, label>;
  struct Config {};
  Linear<> linear;
  Own(const auto& context, const Config&) : linear(context, 4, 4) {}
  auto forward(const auto& x) const { return linear(x); }
  auto loss(const auto& batch) const {
#ifdef WEFT_FAIL
    return sum_losses(batch[label]);
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
