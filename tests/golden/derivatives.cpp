// SPDX-License-Identifier: Apache-2.0
// PyTorch's autograd.grad(create_graph=True) in the losses of four models (make_derivatives.py), in double: a physics-informed
// network, whose residual has first and second derivatives, a potential with energies and forces, and two networks of images with
// the slopes by them: of convolutions, and of a group norm, pooling and Fourier transforms. Losses of some steps and all
// gradients, on one rank and over dp, tp and the stages of ZeRO.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/einsum.hpp>
#include <weft/operations/fourier.hpp>
#include <weft/operations/grad.hpp>
#include <weft/operations/moves.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

constexpr double tolerance = 1e-11;  // relative to the largest value of a tensor
constexpr std::size_t samples = 8, hidden = 8, atoms = 4;

inline constexpr data::Field<"points", float> points;
inline constexpr data::Field<"wanted", float> wanted;
inline constexpr data::Field<"positions", float> positions;
inline constexpr data::Field<"forces", float> forces;
inline constexpr data::Field<"images", float> images;
inline constexpr data::Field<"slopes", float> wanted_slopes;
inline constexpr data::Field<"first", std::int32_t> first_atoms;
inline constexpr data::Field<"second", std::int32_t> second_atoms;

struct Config {
  nlohmann::json golden;
};

/// This rank's samples of a field of the file.
template <class B, class F>
void fill(B& batch, F field, const nlohmann::json& fields, const char* name, const Shape& shape) {
  const auto all = fields[name].template get<std::vector<double>>();
  auto values = batch[field].resize(batch.samples, shape);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = float(all[batch.first_sample * shape.size() + i]);
}

/// A hidden layer, a child of the model that grad calls.
struct Inside : Module<Inside> {
  Parameter<Shard<tp, 0>> in, in_bias;
  Parameter<Shard<tp, 1>> middle;
  Parameter<> middle_bias;
  explicit Inside(const auto& context)
      : in(context, "in", {hidden, 2}, zeros),
        in_bias(context, "in_bias", {hidden}, zeros),
        middle(context, "middle", {hidden, hidden}, zeros),
        middle_bias(context, "middle_bias", {hidden}, zeros) {}
  auto forward(const auto& x) const {
    const auto cut = tanh(matmul(to<Replicated<tp>>(x), in) + in_bias);  // [samples, hidden / tp]
    return tanh(to<Invariant<tp>>(matmul(cut, middle)) + middle_bias);
  }
};

struct Burgers : Module<Burgers> {
  using scalar = double;
  using Config = ::Config;
  using Batch = FieldBatch<points, wanted>;
  Inside inside;
  Parameter<> out;
  Burgers(const auto& context, const Config&) : inside(context), out(context, "out", {1, hidden}, zeros) {}

  auto u(const auto& x) const { return matmul(inside(x), out); }  // [samples, 1]
  auto loss(const auto& batch) const {
    const auto x = to<Invariant<tp>>(batch[points]);  // [samples, 2]
    const auto network = [&](const auto& p) { return u(p); };
    const auto first = [](const auto& slopes) { return slice<1>(slopes, 0, 1); };
    const auto result = value_and_grad(network, x);
    const auto& value = std::get<0>(result);
    const auto& slopes = std::get<1>(result);
    const auto second = grad([&](const auto& p) { return first(grad(network, p)); }, x);
    const auto residual = slice<1>(slopes, 1, 1) + value * first(slopes) - 0.3 * first(second);
    return sum_losses(sum<1>(square(residual) + square(value - to<Invariant<tp>>(batch[wanted]))));
  }
  static Batch make_batch(const Config& config, std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
    Batch batch;
    batch.samples = samples / ranks;
    batch.first_sample = batch.samples * rank;
    batch.micro_batches = micro_batches;
    fill(batch, points, config.golden["fields"], "points", {2});
    fill(batch, wanted, config.golden["fields"], "wanted", {1});
    return batch;
  }
};

struct Potential : Module<Potential> {
  using scalar = double;
  using Config = ::Config;
  using Batch = FieldBatch<positions, forces, first_atoms, second_atoms>;
  static constexpr bool loss_is_a_sum = true;  // its ids count the rows of a rank's batch
  Parameter<Shard<tp, 0>> in, in_bias;
  Parameter<Shard<tp, 1>> out;
  Potential(const auto& context, const Config&)
      : in(context, "in", {hidden, 1}, zeros),
        in_bias(context, "in_bias", {hidden}, zeros),
        out(context, "out", {1, hidden}, zeros) {}

  /// The energies of atoms at p [atoms, 3], [atoms, 1].
  auto energies(const auto& p, const auto& first, const auto& second) const {
    const auto apart = index_select(p, first) - index_select(p, second);                      // [pairs, 3]
    const auto distance = reshape(sqrt(sum<1>(square(apart)) + 0.1), {apart.shape()[0], 1});  // [pairs, 1]
    const auto layer = silu(matmul(to<Replicated<tp>>(distance), in) + in_bias);
    const auto pair = to<Invariant<tp>>(matmul(layer, out)) * exp(-distance);
    return segment_sum(pair, first, p.shape()[0]);
  }
  auto loss(const auto& batch) const {
    const auto atoms_of = [](const auto& x) { return flatten<0, 1>(to<Invariant<tp>>(x)); };
    const auto first = atoms_of(batch[first_atoms]), second = atoms_of(batch[second_atoms]);
    const auto result = value_and_grad([&](const auto& p) { return energies(p, first, second); }, atoms_of(batch[positions]));
    const auto wrong = -std::get<1>(result) - atoms_of(batch[forces]);
    const auto each = sum<1>(square(wrong)) + sum<1>(square(std::get<0>(result)));
    return sum_losses(sum<1>(unflatten<0>(each, atoms)));
  }
  static Batch make_batch(const Config& config, std::size_t rank, std::size_t ranks, std::size_t) {
    Batch batch;
    batch.samples = samples / ranks;
    batch.first_sample = batch.samples * rank;
    fill(batch, positions, config.golden["fields"], "positions", {atoms, 3});
    fill(batch, forces, config.golden["fields"], "forces", {atoms, 3});
    auto first = batch[first_atoms].resize(batch.samples, {atoms * (atoms - 1)}),
         second = batch[second_atoms].resize(batch.samples, {atoms * (atoms - 1)});
    std::size_t at = 0;
    for (std::size_t sample = 0; sample < batch.samples; ++sample)
      for (std::size_t a = 0; a < atoms; ++a)
        for (std::size_t b = 0; b < atoms; ++b)
          if (a != b) first[at] = std::int32_t(sample * atoms + a), second[at++] = std::int32_t(sample * atoms + b);
    return batch;
  }
};

/// The loss and the batches of a model of the energies of images, whose slopes by the images are given.
template <class Model>
struct Slopes : Module<Model> {
  using scalar = double;
  using Config = ::Config;
  using Batch = FieldBatch<images, wanted_slopes>;

  auto loss(const auto& batch) const {
    const auto result = value_and_grad([&](const auto& x) { return static_cast<const Model&>(*this).energies(x); },
                                       to<Invariant<tp>>(batch[images]));
    const auto wrong = flatten<1, 3>(std::get<1>(result) - to<Invariant<tp>>(batch[wanted_slopes]));
    return 0.01 * sum_losses(sum<1>(square(wrong)) + 0.1 * square(std::get<0>(result)));
  }
  static Batch make_batch(const Config& config, std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
    Batch batch;
    batch.samples = samples / ranks;
    batch.first_sample = batch.samples * rank;
    batch.micro_batches = micro_batches;
    fill(batch, images, config.golden["fields"], "images", {2, 4, 4});
    fill(batch, wanted_slopes, config.golden["fields"], "slopes", {2, 4, 4});
    return batch;
  }
};

/// Convolutions, of which tp cuts the channels between them, a gain that is broadcast, a layer norm and choices.
struct Field : Slopes<Field> {
  Conv2d<> in;
  Conv2d<Shard<tp, 0>> middle;
  Parameter<> gain;
  LayerNorm norm;
  ConvTranspose2d<> out;
  Field(const auto& context, const Config&)
      : in(context / "in", 2, 4, 3, {.padding = 1, .mode = PaddingMode::periodic}),
        middle(context / "middle", 4, 4, 2),
        gain(context, "gain", {4, 1, 1}, zeros),
        norm(context / "norm", 36, 0.1),
        out(context / "out", 4, 1, 2, {.bias = false}) {}

  /// The energies of images x [samples, 2, 4, 4], [samples].
  auto energies(const auto& x) const {
    const auto cut = tanh(middle(to<Replicated<tp>>(tanh(in(x)))));  // [samples, 4 / tp, 3, 3]
    const auto whole = to<Invariant<tp>>(cut);
    const auto hidden = whole * beside(whole, gain);
    const auto rows = norm(flatten<1, 3>(hidden));
    const auto chosen = rows * clamp(rows, -0.8, 0.9) - maximum(rows, 0.3 * square(rows));
    const auto image = flatten<1, 3>(out(hidden));  // [samples, 16]
    return sum<1>(chosen) + sum<1>(log_softmax<1>(image) * image);
  }
};

/// A group norm and pooling of channels that tp cuts, and Fourier transforms whose frequencies a sum over tp mixes.
struct Spectral : Slopes<Spectral> {
  Conv2d<Shard<tp, 0>> in;
  GroupNorm<Shard<tp, 0>> norm;
  Parameter<Shard<tp, 0>> mix;
  Spectral(const auto& context, const Config&)
      : in(context / "in", 2, 4, 3), norm(context / "norm", 2, 4, {.epsilon = 0.1}), mix(context, "mix", {4, 4}, zeros) {}

  /// The energies of images x [samples, 2, 4, 4], [samples].
  auto energies(const auto& x) const {
    const auto around = pad<2, 3>(x, 1, 1, PaddingMode::reflect);
    const auto normed = tanh(norm(in(to<Replicated<tp>>(around))));  // [samples, 4 / tp, 4, 4]
    const PoolingOptions window{.kernel = 3, .stride = 1, .padding = 1};
    const auto spectrum = rfft<2, 3>(avg_pool2d(normed, window) + max_pool2d(normed, window));  // [samples, 4 / tp, 4, 3, 2]
    const auto image = irfft<2, 3>(to<Invariant<tp>>(einsum<"nixyc,io->noxyc">(spectrum, mix)), 4);
    const auto moved = roll<2>(image, 1) * flip<3>(image) + 0.3 * cumsum<3>(image);  // [samples, 4, 4, 4]
    const auto rows = flatten<1, 3>(moved);
    return sum<1>(softmax(rows) * rows) + sum<1>(square(max<2>(flatten<2, 3>(moved))));
  }
};

struct Layout {
  int world;
  std::size_t tp, micro_batches;
  int zero;
};

/// The largest difference of one rank.
template <class Model, class Mesh>
double difference_of(const Mesh& mesh, const Layout& layout, const Config& config) {
  FullyShardedDataParallel<TensorParallel<Model>> model(mesh, config, {.shard = {.stage = layout.zero}});
  const auto parameters = config.golden["parameters"].template get<std::map<std::string, std::vector<double>>>();
  std::size_t found = 0;
  model.for_each_state([&](ParameterState& state) {
    const auto& values = parameters.at(std::string(state.name()));
    for (const auto& run : state.runs())
      std::copy_n(values.begin() + std::ptrdiff_t(run.global), run.length, static_cast<double*>(state.value().get()) + run.local);
    ++found;
  });
  CHECK(found == parameters.size());
  optim::Sgd optimizer(model, {.learning_rate = 0.05});
  const auto batch = Model::make_batch(config, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), layout.micro_batches);
  double largest = 0;
  const auto compare = [&](double got, double expected, double scale) {
    const double error = std::abs(got - expected) / scale;
    largest = std::max(largest, std::isfinite(error) ? error : 1e300);
  };
  const auto losses = config.golden["losses"].template get<std::vector<double>>();
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const double loss = losses[step];
    compare(model.evaluate(batch), loss, loss);
    compare(model.train_step(batch), loss, loss);
    if (step == 0)
      for (const auto& [name, values] : config.golden["gradients"].items()) {
        const auto expected = values.template get<std::vector<double>>(), got = model.gradient(name);
        REQUIRE(got.size() == expected.size());
        double scale = 0;
        for (const double value : expected) scale = std::max(scale, std::abs(value));
        CHECK(scale > 0.01);
        for (std::size_t i = 0; i < got.size(); ++i) compare(got[i], expected[i], scale);
      }
    optimizer.step();
  }
  return largest;
}

template <class Model>
void check(const std::string& name, const std::vector<Layout>& layouts) {
  std::ifstream in(std::string(WEFT_GOLDEN_FOLDER) + "/derivatives.json");
  REQUIRE(in);
  const Config config{nlohmann::json::parse(in)[name]};
  for (const Layout& layout : layouts) {
    std::mutex mutex;
    double largest = 0;
    CHECK(runtime::run(runtime::RunOptions{.ranks = layout.world}, [&](World& world) {
            Mesh<dp, tp> mesh(world, {.tp = layout.tp});
            const double mine = difference_of<Model>(mesh, layout, config);
            std::lock_guard lock(mutex);
            largest = std::max(largest, mine);
          }) == 0);
    INFO(name << ", world " << layout.world << ", tp(" << layout.tp << "), ZeRO " << layout.zero);
    CHECK(largest <= tolerance);
  }
}

}  // namespace

TEST_CASE("a physics-informed network equals PyTorch's in every layout") {
  check<Burgers>(
      "Burgers",
      {{1, 1, 1, 0}, {1, 1, 2, 3}, {2, 1, 2, 0}, {4, 1, 1, 1}, {2, 1, 2, 2}, {4, 1, 1, 3}, {2, 2, 2, 0}, {4, 2, 2, 3}});
}
TEST_CASE("a potential with energies and forces equals PyTorch's in every layout") {
  check<Potential>("Potential", {{1, 1, 1, 0}, {2, 1, 1, 0}, {4, 1, 1, 2}, {4, 1, 1, 3}, {2, 2, 1, 0}, {8, 2, 1, 3}});
}
TEST_CASE("a network of convolutions and the slopes by its images equal PyTorch's in every layout") {
  check<Field>("Field", {{1, 1, 1, 0}, {2, 1, 2, 0}, {4, 1, 1, 2}, {4, 1, 1, 3}, {2, 2, 2, 0}, {8, 2, 1, 3}});
}
TEST_CASE("a group norm, pooling and Fourier transforms equal PyTorch's in every layout") {
  check<Spectral>("Spectral", {{1, 1, 1, 0}, {2, 1, 2, 0}, {4, 1, 1, 2}, {4, 1, 1, 3}, {2, 2, 2, 0}, {4, 2, 1, 3}});
}
