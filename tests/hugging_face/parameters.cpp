// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/set_parameter.hpp weft/hugging_face/load_parameters.hpp
// Parameters set by name, and from a safetensors file with other names: the same bits back in every layout, matching master
// copies, and errors before anything changes.

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <weft/hugging_face/load_parameters.hpp>
#include <weft/parallel/set_parameter.hpp>

#include "support/experts.hpp"
#include "support/matrix.hpp"
#include "support/message.hpp"
#include "support/temporary_folder.hpp"

using namespace weft_test;

namespace {

using Model = models::Gpt;
using Composition = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;
using Experts = FullyShardedDataParallel<TensorParallel<ExpertParallel<PipelineParallel<models::Mixtral>>>>;

struct Layout {
  int world;
  Degrees degrees;
  int zero = 0;
  const char* schedule = "1f1b";
};
const std::vector<Layout> layouts = {
    {1, {}}, {2, {.tp = 2}}, {2, {}, 1}, {2, {}, 2}, {4, {.tp = 2}, 3}, {2, {.pp = 2}}, {4, {.pp = 2}, 3, "interleaved"}};

models::GptConfig gpt() { return {.vocabulary = 19, .layers = 4, .width = 16, .heads = 4, .sequence = batch_length}; }

template <class C, class Axes = Mesh<dp, tp, pp>, class F>
void on(const Layout& layout, const typename C::Config& config, F&& f) {
  INFO("world " << layout.world << ", zero " << layout.zero);
  CHECK(runtime::run(runtime::RunOptions{.ranks = layout.world}, [&](World& world) {
          Axes mesh(world, layout.degrees);
          ModelOptions options;
          options.shard.stage = layout.zero;
          options.pipeline.schedule = schedule::choose(layout.schedule);
          C model(mesh, config, options);
          f(model, make_batch(0, std::size_t(mesh.rank(dp{})), mesh.size(dp{}), 2));
        }) == 0);
}

std::vector<double> numbers(const std::string& name, std::size_t count) {
  std::vector<double> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = double(float(Philox::normal(site_of(name), i)));
  return all;
}
void set_all(auto& model) {
  for (const std::string& name : model.parameter_names()) model.set_parameter(name, numbers(name, model.parameter(name).size()));
}
/// Throws on the rank that finds other values.
void require_all(auto& model) {
  for (const std::string& name : model.parameter_names()) {
    const auto found = model.parameter(name);
    if (found != numbers(name, found.size())) throw Error(name + " has other values than it was set to");
  }
}

struct Tensor32 {
  std::string name;
  std::vector<std::size_t> shape;
  std::vector<double> values;
};
/// The tensors of the model with numbers of their names, as PyTorch's file has them.
std::vector<Tensor32> tensors_of(const models::GptConfig& config) {
  DefaultDevice device;
  SingleDevice<Model> model(device, config);
  std::vector<Tensor32> all;
  model.for_each_state([&](ParameterState& state) {
    std::vector<std::size_t> shape;
    for (std::size_t dim = 0; dim < state.global().rank(); ++dim) shape.push_back(state.global()[dim]);
    all.push_back({"module." + state.name(), shape, numbers(state.name(), state.global().size())});
  });
  return all;
}
void write_file(const std::string& path, const std::vector<Tensor32>& all, checkpoint::StoredType type) {
  std::vector<checkpoint::StoredTensor> stored;
  std::string data;
  const auto put = [&](auto number) { data.append(reinterpret_cast<const char*>(&number), sizeof number); };
  for (const Tensor32& tensor : all) {
    checkpoint::StoredTensor one;
    one.name = tensor.name;
    one.type = type;
    one.shape = tensor.shape;
    stored.push_back(one);
    for (const double value : tensor.values) type == checkpoint::StoredType::f64 ? put(value) : put(float(value));
  }
  std::ofstream(path, std::ios::binary) << checkpoint::safetensors_header(stored) << data;
}
std::string without_module(const std::string& name) { return name == "module.steps" ? "" : name.substr(7); }

}  // namespace

TEST_CASE("set_parameter: the same bits back in every layout") {
  for (const Layout& layout : layouts)
    on<Composition>(layout, gpt(), [&](auto& model, const Batch& batch) {
      set_all(model);
      require_all(model);
      optim::AdamW optimizer(model, {.learning_rate = 0.1});
      model.train_step(batch);
      optimizer.step();
      set_all(model);  // with an optimizer, after a step
      require_all(model);
    });
  on<Experts, Mesh<dp, tp, pp, ep, etp, edp>>({4, {.tp = 2, .ep = 2}, 3}, mixtral_config(), [](auto& model, const Batch&) {
    set_all(model);
    require_all(model);
  });
}

TEST_CASE("set_parameter: layers compute with the values, and a master copy starts from them") {
  DefaultDevice device;
  using Narrow = models::BasicGpt<bfloat16>;
  SingleDevice<Narrow> model(device, gpt());
  const std::string name = "transformer.h.0.ln_1.weight";
  optim::Sgd optimizer(model, {.learning_rate = 1e-3, .clip = 0});
  const Batch batch = make_batch(0, 0, 1, 1);
  const double before = model.evaluate(batch);
  model.set_parameter(name, std::vector<float>(16, 3.0f));
  CHECK(model.parameter(name) == std::vector<double>(16, 3.0));
  CHECK(model.evaluate(batch) != before);
  model.train_step(batch);
  optimizer.step();
  for (const double value : model.parameter(name)) CHECK(std::abs(value - 3) < 0.1);  // not from 1, as the master copy began
}

TEST_CASE("set_parameter: refusals change nothing") {
  on<Composition>({2, {.tp = 2}}, gpt(), [](auto& model, const Batch& batch) {
    const std::string name = "transformer.h.0.ln_1.weight";
    const bool first = model.communicator().rank() == 0;
    const std::vector<double> twos(16, 2.0), some(15, 2.0), own(16, first ? 2.0 : 3.0);
    const auto refused = [&](const std::string& part, const std::string& text) {
      if (text.find(part) == std::string::npos) throw Error("expected " + part + ", got " + text);
    };
    refused("set_parameter of transformer.h.0.ln_1.weight: 15 values for a parameter of 16",
            message<UsageError>([&] { model.set_parameter(name, some); }));
    refused("rank 1 gives other values than rank 0", message<UsageError>([&] { model.set_parameter(name, own); }));
    refused("another another one",
            message<UsageError>([&] { model.set_parameter(first ? name : "transformer.ln_f.weight", twos); }));
    refused("the model has no parameter transformer.h.9",
            message<UsageError>([&] { model.set_parameter("transformer.h.9", twos); }));
    if (model.parameter(name) != std::vector<double>(16, 1.0)) throw Error("a refused value was written");
    model.train_step(batch);
  });
  DefaultDevice device;
  SingleDevice<models::BasicGpt<float16>> narrow(device, gpt());
  std::vector<double> large(16, 1.0);
  large[3] = 1e6;
  CHECK(message<UsageError>([&] {
          narrow.set_parameter("transformer.ln_f.weight", large);
        }).find("the value at place 3 is finite and not in the model's float16") != std::string::npos);
  large[3] = std::numeric_limits<double>::infinity();
  narrow.set_parameter("transformer.ln_f.weight", large);
  CHECK(narrow.parameter("transformer.ln_f.weight") == large);
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [](World& world) {
          Mesh<dp, tp, pp> mesh(world, {.tp = 1});
          Composition model(mesh, gpt(), {.shard = {.stage = 3, .offload = Offload::host()}});
          const std::string text =
              message<UsageError>([&] { model.set_parameter("transformer.ln_f.weight", std::vector<double>(16)); });
          if (text.find("keeps in a store: load them from a file") == std::string::npos) throw Error("not refused: " + text);
        }) == 0);
}

TEST_CASE("load_parameters: a file with names of its own, in every layout") {
  TemporaryFolder place;
  const std::string file = (place.path / "model.safetensors").string();
  std::vector<Tensor32> tensors = tensors_of(gpt());
  tensors.push_back({"module.steps", {1}, {5}});  // left out by its new name
  write_file(file, tensors, checkpoint::StoredType::f32);
  for (const Layout& layout : layouts)
    on<Composition>(layout, gpt(), [&](auto& model, const Batch& batch) {
      hugging_face::load_parameters(file, model, without_module);
      require_all(model);
      optim::AdamW optimizer(model, {.learning_rate = 0.1});
      model.train_step(batch);
      optimizer.step();
      hugging_face::load_parameters(file, model, optimizer, without_module);
      require_all(model);
    });
}

TEST_CASE("load_parameters: names, shapes and types are compared before anything changes") {
  TemporaryFolder place;
  const std::string file = (place.path / "model.safetensors").string();
  const std::vector<Tensor32> good = tensors_of(gpt());
  const auto refused = [&](const std::vector<Tensor32>& tensors, checkpoint::StoredType type,
                           const hugging_face::Rename& rename) {
    write_file(file, tensors, type);
    std::string text;
    on<Composition>({2, {.pp = 2}}, gpt(), [&](auto& model, const Batch&) {
      const auto before = model.parameter("transformer.wte.weight");
      const std::string mine = message<checkpoint::Error>([&] { hugging_face::load_parameters(file, model, rename); });
      if (model.parameter("transformer.wte.weight") != before) throw Error("a refused file was read");
      if (model.communicator().rank() == 0) text = mine;
    });
    return text;
  };
  using enum checkpoint::StoredType;
  const std::string unnamed = refused(good, f32, {});
  CHECK(unnamed.find("it lacks ") != std::string::npos);
  CHECK(unnamed.find(" tensors of this one: transformer.") != std::string::npos);
  CHECK(unnamed.find("; it has 52 tensors that this one has not: module.transformer.") != std::string::npos);
  auto more = good;
  more.push_back({"module.other", {2}, {1, 2}});
  CHECK(refused(more, f32, without_module).find("it has 1 tensors that this one has not: other") != std::string::npos);
  auto fewer = good, turned = good;
  const std::string last = good.back().name.substr(7);
  fewer.pop_back();
  CHECK(refused(fewer, f32, without_module).find("it lacks 1 tensors of this one: " + last) != std::string::npos);
  for (Tensor32& tensor : turned)
    if (tensor.name == "module.transformer.wte.weight") std::swap(tensor.shape[0], tensor.shape[1]);
  CHECK(refused(turned, f32, without_module).find("is [16, 19], and [19, 16] in this model") != std::string::npos);
  CHECK(refused(good, f64, without_module).find("is of type F64, which does not fit into a parameter of type F32") !=
        std::string::npos);
  CHECK(refused(good, f32, [](const std::string&) {
          return std::string("transformer.wte.weight");
        }).find("is there twice, by two names") != std::string::npos);
}
