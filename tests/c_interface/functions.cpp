// SPDX-License-Identifier: Apache-2.0
// The C interface: its training has the bits of the same model in C++, checkpoints continue, models of the program are found by
// name, and every misuse is a code with a text.
// covers: weft/c_interface/define.hpp weft/c_interface/mlp.hpp weft/c_interface/models.hpp weft/c_interface/options.hpp

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <weft/c_interface/define.hpp>
#include <weft/c_interface/mlp.hpp>
#include <weft/c_interface/models.hpp>
#include <weft/c_interface/options.hpp>
#include <weft/weft.hpp>

#include "support/temporary_folder.hpp"

using namespace weft;
using weft_test::TemporaryFolder;

namespace {

inline constexpr data::Field<"cells", double> cells;
inline constexpr data::Field<"kind", std::int32_t> kind;

/// A model of the program: double, a field of numbers, and an option.
struct Kinds : Module<Kinds> {
  using scalar = double;
  using Batch = FieldBatch<cells, kind>;
  struct Config {
    std::size_t kinds = 2;
  };
  Linear<> layer;
  Kinds(const auto& context, const Config& config) : layer(context / "layer", 4, config.kinds) {}
  auto forward(const auto& x) const { return layer(x); }
  auto loss(const auto& batch) const { return cross_entropy(forward(batch[cells]), batch[kind]); }
};
const c_interface::Registered<Kinds> kinds("kinds", [](const c_interface::Options& options) {
  return Kinds::Config{.kinds = options.number<std::size_t>("kinds", 2)};
});
const c_interface::Registered<Kinds> first("taken"), second("taken");

constexpr std::size_t samples = 12, inputs = 3, outputs = 2;
std::vector<double> wave(std::size_t size, int step) {
  std::vector<double> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = std::sin(0.3 * double(i) + step);
  return values;
}

struct Session {
  weft_world* world = nullptr;
  weft_model* model = nullptr;
  Session(const char* name, const char* options) {
    REQUIRE(weft_world_single(&world) == 0);
    REQUIRE_MESSAGE(weft_model_new(world, name, options, &model) == 0, weft_error());
  }
  ~Session() {
    CHECK(weft_model_free(model) == 0);
    CHECK(weft_world_free(world) == 0);
  }
};
const std::size_t input_shape[] = {inputs}, output_shape[] = {outputs};

/// Gives both fields of the mlp in double, which are converted.
void give(weft_model* model, int step) {
  REQUIRE(weft_field(model, "input", wave(samples * inputs, step).data(), WEFT_FLOAT64, samples, 1, input_shape) == 0);
  REQUIRE(weft_field(model, "target", wave(samples * outputs, step + 1).data(), WEFT_FLOAT64, samples, 1, output_shape) == 0);
}

}  // namespace

TEST_CASE("training from C has the bits of training in C++") {
  Session c("mlp", "inputs=3 hidden=16,8 outputs=2 activation=silu seed=7");
  REQUIRE(weft_optimizer(c.model, "adamw", "learning_rate=0.01 weight_decay=0.1 clip=1") == 0);
  World world{Communicator()};
  Mesh<dp> mesh(world);
  using c_interface::Mlp;
  const Mlp::Config config{.inputs = 3, .outputs = 2, .hidden = {16, 8}, .activation = Mlp::Activation::silu};
  FullyShardedDataParallel<Mlp> model(mesh, config, {.seed = 7});
  optim::AdamW optimizer(model, {.learning_rate = 0.01, .weight_decay = 0.1, .clip = 1});
  Mlp::Batch batch{.samples = samples};
  for (int step = 0; step < 5; ++step) {
    give(c.model, step);
    const auto x = wave(samples * inputs, step), y = wave(samples * outputs, step + 1);
    batch.step = std::uint64_t(step);
    batch[c_interface::input].assign(std::vector<float>(x.begin(), x.end()), {inputs});
    batch[c_interface::target].assign(std::vector<float>(y.begin(), y.end()), {outputs});
    double loss = 0, norm = 0;
    CHECK(weft_train(c.model, &loss) == 0);
    CHECK(loss == model.train_step(batch));
    CHECK(weft_gradient_norm(c.model, &norm) == 0);
    CHECK(norm == optimizer.step().gradient_norm);
  }
  std::uint64_t steps = 0;
  CHECK(weft_steps(c.model, &steps) == 0);
  CHECK(steps == 5);
  REQUIRE(weft_parameter_count(c.model) == int(model.parameter_names().size()));
  for (int i = 0; i < weft_parameter_count(c.model); ++i) {
    const std::string name = weft_parameter_name(c.model, i);
    std::size_t size = 0;
    CHECK(weft_parameter_size(c.model, name.c_str(), &size) == 0);
    std::vector<double> values(size);
    CHECK(weft_parameter_get(c.model, name.c_str(), values.data(), size) == 0);
    CHECK(values == model.parameter(name));
  }
  std::vector<double> outputs_of_c(samples * outputs);
  CHECK(weft_predict(c.model, outputs_of_c.data(), outputs_of_c.size()) == 0);
  CHECK(outputs_of_c == model.predict(batch).values);
  double loss = 0;
  CHECK(weft_evaluate(c.model, &loss) == 0);
  CHECK(loss == model.evaluate(batch));
}

TEST_CASE("values of the field's type are read where they lie") {
  Session c("mlp", "inputs=1 hidden=4 outputs=1");
  float x[4] = {1, 2, 3, 4}, y[4] = {0, 0, 0, 0};
  const std::size_t one[] = {1};
  REQUIRE(weft_field(c.model, "input", x, WEFT_FLOAT32, 4, 1, one) == 0);
  REQUIRE(weft_field(c.model, "target", y, WEFT_FLOAT32, 4, 1, one) == 0);
  double before = 0, after = 0;
  CHECK(weft_evaluate(c.model, &before) == 0);
  y[2] = 100;  // the simulation writes
  CHECK(weft_evaluate(c.model, &after) == 0);
  CHECK(after > before + 1000);
}

TEST_CASE("a prediction takes another number of samples, and copies may change") {
  Session c("mlp", "inputs=3 hidden=8 outputs=2");
  REQUIRE(weft_optimizer(c.model, "sgd", "learning_rate=0.05") == 0);
  give(c.model, 0);
  CHECK(weft_train(c.model, nullptr) == 0);
  double all[samples * outputs], some[2 * outputs];
  CHECK(weft_predict(c.model, all, samples * outputs) == 0);
  std::vector<float> x;
  for (const double one : wave(2 * inputs, 0)) x.push_back(float(one));
  REQUIRE(weft_field_copy(c.model, "input", x.data(), WEFT_FLOAT32, 2, 1, input_shape) == 0);
  x.assign(x.size(), 1e6f);
  REQUIRE_MESSAGE(weft_predict(c.model, some, 2 * outputs) == 0, weft_error());
  for (std::size_t i = 0; i < 2 * outputs; ++i) CHECK(std::abs(some[i] - all[i]) < 1e-6);
  CHECK(weft_optimizer(c.model, "adam", "") == 2);  // the optimizer stays
  CHECK(weft_optimizer(c.model, "sgd", "momentum=2") == 2);
  give(c.model, 1);
  CHECK(weft_train(c.model, nullptr) == 0);
}

TEST_CASE("a checkpoint continues bit for bit, and parameters are set by name") {
  const TemporaryFolder folder;
  const std::string path = (folder.path / "run").string();
  Session c("mlp", "inputs=3 hidden=8 outputs=2"), other("mlp", "inputs=3 hidden=8 outputs=2 seed=5");
  for (Session* each : {&c, &other}) REQUIRE(weft_optimizer(each->model, "sgd", "learning_rate=0.05 momentum=0.9") == 0);
  double loss = 0, expected = 0;
  for (int step = 0; step < 3; ++step) {
    give(c.model, step);
    CHECK(weft_train(c.model, nullptr) == 0);
  }
  REQUIRE_MESSAGE(weft_save(c.model, path.c_str()) == 0, weft_error());
  REQUIRE_MESSAGE(weft_load(other.model, path.c_str()) == 0, weft_error());
  std::uint64_t steps = 0;
  CHECK(weft_steps(other.model, &steps) == 0);
  CHECK(steps == 3);
  for (int step = 3; step < 6; ++step) {
    for (Session* each : {&c, &other}) give(each->model, step);
    CHECK(weft_learning_rate(c.model, 0.01) == 0);
    CHECK(weft_learning_rate(other.model, 0.01) == 0);
    CHECK(weft_train(c.model, &expected) == 0);
    CHECK(weft_train(other.model, &loss) == 0);
    CHECK(loss == expected);
  }
  const std::string name = "layers.0.weight";
  std::vector<double> values(8 * 3, 0.25), back(8 * 3);
  CHECK(weft_parameter_set(c.model, name.c_str(), values.data(), values.size()) == 0);
  CHECK(weft_parameter_get(c.model, name.c_str(), back.data(), back.size()) == 0);
  CHECK(back == values);
  CHECK(weft_parameter_name(c.model, 4) == nullptr);
}

TEST_CASE("a model of the program: fields of double and of whole numbers, without dims") {
  Session c("kinds", "kinds=3");
  REQUIRE(weft_optimizer(c.model, "adamw", nullptr) == 0);
  const std::vector<double> x = wave(5 * 4, 0);
  const std::int32_t labels[] = {0, 2, 1, 2, 0};
  const std::size_t shape[] = {4};
  REQUIRE(weft_field(c.model, "cells", x.data(), WEFT_FLOAT64, 5, 1, shape) == 0);
  REQUIRE(weft_field(c.model, "kind", labels, WEFT_INT32, 5, 0, nullptr) == 0);
  double start = 0, loss = 0;
  for (int step = 0; step < 20; ++step) REQUIRE_MESSAGE(weft_train(c.model, step == 0 ? &start : &loss) == 0, weft_error());
  CHECK(loss < start);
}

TEST_CASE("misuse is a code, and a text with the remedy") {
  weft_world* world = nullptr;
  weft_model* model = nullptr;
  REQUIRE(weft_world_single(&world) == 0);
  const auto refused = [](int code, const std::string& text) {
    CHECK(code == 2);
    CHECK(std::string(weft_error()) == "weft: " + text);
  };
  weft_world* over_mpi = nullptr;
  refused(weft_world_mpi(0, &over_mpi), "weft_world_mpi: this program's C++ file does not include weft/c_interface/mpi.hpp");
  CHECK(weft_model_count() == 3);
  CHECK(std::string(weft_model_name(0)) == "kinds");
  CHECK(weft_model_name(3) == nullptr);
  CHECK(std::string(weft_version()) == weft::version());
  refused(weft_model_new(world, "unet", "", &model),
          "weft_model_new: no model is registered as 'unet'; there are: kinds, mlp, taken");
  refused(weft_model_new(world, "taken", "", &model), "weft_model_new: two models are registered as 'taken'");
  refused(weft_model_new(nullptr, "mlp", "", &model), "weft_model_new: the world is a null pointer");
  refused(weft_model_new(world, "mlp", "inputs", &model), "model mlp: 'inputs' is not KEY=VALUE");
  refused(weft_model_new(world, "mlp", "inputs=3 inputs=4", &model), "model mlp: inputs is given twice");
  refused(weft_model_new(world, "mlp", "inputs=3x", &model), "model mlp: inputs=3x is not a number of this option's type");
  refused(weft_model_new(world, "mlp", "hidden=3,,4", &model), "model mlp: hidden= is not a number of this option's type");
  refused(weft_model_new(world, "mlp", "width=3", &model),
          "model mlp: there is no option width; there are activation, hidden, inputs, outputs, seed, zero");
  refused(weft_model_new(world, "mlp", "activation=sin", &model),
          "model mlp: there is no activation 'sin'; there are tanh, relu, silu and gelu");
  refused(weft_model_new(world, "mlp", "hidden=0", &model), "model mlp: a hidden layer of width 0");
  CHECK(model == nullptr);
  REQUIRE(weft_model_new(world, "mlp", "inputs=3 outputs=2", &model) == 0);
  refused(weft_world_free(world), "weft_world_free: the world has models: call weft_model_free first");
  refused(weft_train(model, nullptr), "weft_train: the model has no optimizer: call weft_optimizer first");
  refused(weft_save(model, "/nowhere"), "weft_save: a checkpoint holds model and optimizer: call weft_optimizer first");
  refused(weft_optimizer(model, "adam", ""), "weft_optimizer: there is no optimizer 'adam'; there are adamw and sgd");
  refused(weft_optimizer(model, "sgd", "beta1=0.5"),
          "optimizer sgd: there is no option beta1; there are clip, learning_rate, momentum, weight_decay");
  float x[6] = {};
  const std::size_t three[] = {3}, many[] = {1, 1, 1, 1, 1, 1, 1};
  refused(weft_field(model, "inputs", x, WEFT_FLOAT32, 2, 1, three),
          "weft_field: the model has no field 'inputs'; it has input, target");
  refused(weft_field(model, "input", x, WEFT_INT32, 2, 1, three), "weft_field: 'input' holds float32, not int32");
  refused(weft_field(model, "input", nullptr, WEFT_FLOAT32, 2, 1, three), "weft_field: the values of 'input' are a null pointer");
  refused(weft_field(model, "input", x, WEFT_FLOAT32, 2, -1, nullptr), "weft_field: 'input' has rank -1");
  CHECK(weft_field(model, "input", x, WEFT_FLOAT32, 1, 7, many) != 0);
  REQUIRE(weft_field(model, "input", x, WEFT_FLOAT32, 2, 1, three) == 0);
  double out[5];
  refused(weft_predict(model, out, 5), "weft_predict: there are 4 elements, and the array has 5");
  double loss = 0;
  refused(weft_evaluate(model, &loss), "weft_evaluate: the field 'target' has no values: call weft_field first");
  REQUIRE(weft_optimizer(model, "sgd", "") == 0);
  refused(weft_train(model, &loss), "weft_train: the field 'target' has no values: call weft_field first");
  refused(weft_learning_rate(model, -1), "learning rate -1.000000 is not a number of at least 0");
  CHECK(weft_parameter_get(model, "nobody", out, 5) != 0);
  CHECK(weft_model_free(nullptr) == 0);
  CHECK(weft_model_free(model) == 0);
  CHECK(weft_world_free(world) == 0);
  CHECK(weft_world_rank(nullptr) == -1);
}
