// SPDX-License-Identifier: Apache-2.0
// covers: weft/hugging_face/adapters.hpp weft/hugging_face/merge.hpp
// Low-rank adapters in files: without the base model, with PEFT's names, from and to any layout with the same bits; merged into
// the weights and back; in checkpoints, from which a run continues with the same bits; and errors. test_finetune.py compares with
// PyTorch.

#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <weft/checkpoint/checkpoint.hpp>
#include <weft/hugging_face/adapters.hpp>
#include <weft/hugging_face/hugging_face.hpp>
#include <weft/hugging_face/merge.hpp>
#include <weft/nn/lora.hpp>
#include <weft/weft.hpp>

#include "support/batches.hpp"
#include "support/message.hpp"
#include "support/temporary_folder.hpp"

using namespace weft_test;

namespace {

template <class Model>
using Dense = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;
using Llama = Dense<models::BasicLlama<float, Lora>>;
using Grid = Mesh<dp, tp, pp>;

const models::LlamaConfig small{.vocabulary = batch_vocabulary,
                                .layers = 2,
                                .width = 16,
                                .heads = 4,
                                .kv_heads = 2,
                                .intermediate = 24,
                                .sequence = batch_length};
const LoraOptions adapters{.rank = 2, .alpha = 6, .match = {"*.q_proj", "*.v_proj", "model.layers.1.mlp.down_proj"}};

struct Layout {
  std::size_t world;
  Degrees degrees;
  int zero = 0;
};
template <class Composition = Llama, class F>
void on(const Layout& layout, F&& f, const LoraOptions& lora = adapters, const typename Composition::Config& config = small) {
  CHECK(runtime::run(runtime::RunOptions{.ranks = int(layout.world)}, [&](World& world) {
          Grid mesh(world, layout.degrees);
          Composition model(mesh, config, {.seed = 5, .shard = {.stage = layout.zero}, .lora = lora});
          f(model, mesh, world);
        }) == 0);
}
const std::vector<Layout> layouts = {{1, {}}, {4, {.tp = 2}, 3}, {4, {.tp = 2, .pp = 2}}, {2, {}, 2}, {2, {.pp = 2}}};

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE_MESSAGE(in, path);
  return {std::istreambuf_iterator<char>(in), {}};
}
void step(auto& model, auto& optimizer, const auto& mesh, std::uint64_t at) {
  model.train_step(make_batch(at, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), 2));
  optimizer.step();
}
std::map<std::string, std::vector<double>> values_of(auto& model) {
  std::map<std::string, std::vector<double>> values;
  for (const std::string& name : model.parameter_names()) values[name] = model.parameter(name);
  return values;
}
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() && !a.empty() ? 0 : INFINITY;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

TEST_CASE("adapters alone: every layout reads what another wrote, with PEFT's names, and the same bytes come out") {
  TemporaryFolder place;
  const auto folder = [&](std::size_t i) { return (place.path / std::to_string(i)).string(); };
  on(layouts[0], [&](auto& model, const auto& mesh, World&) {
    optim::AdamW optimizer(model, {.learning_rate = 1e-2});
    step(model, optimizer, mesh, 0);
    step(model, optimizer, mesh, 1);
    hugging_face::save_adapters(folder(0), model, {.base = "the/base"});
  });
  const std::string weights = text_of(folder(0) + "/adapter_model.safetensors");
  CHECK(weights.find("\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\"") != weights.npos);
  CHECK(weights.find("\"base_model.model.model.layers.1.mlp.down_proj.lora_B.weight\"") != weights.npos);
  CHECK(weights.find("k_proj") == weights.npos);
  const auto config = nlohmann::json::parse(text_of(folder(0) + "/adapter_config.json"));
  CHECK(config["target_modules"] == nlohmann::json({"model.layers.1.mlp.down_proj", "q_proj", "v_proj"}));
  CHECK(config["r"] == 2);
  CHECK(config["lora_alpha"] == 6.0);
  CHECK(config["base_model_name_or_path"] == "the/base");
  const LoraOptions read = hugging_face::read_adapter_config(folder(0));
  CHECK(read.match == std::vector<std::string>{"model.layers.1.mlp.down_proj", "*.q_proj", "*.v_proj"});
  for (std::size_t i = 1; i < layouts.size(); ++i) {
    INFO("layout " << i);
    on(
        layouts[i],
        [&](auto& model, const auto&, World&) {
          optim::AdamW optimizer(model, {});
          if (i % 2 == 0) hugging_face::load_adapters(folder(i - 1), model);
          else hugging_face::load_adapters(folder(i - 1), model, optimizer);
          hugging_face::save_adapters(folder(i), model, {.base = "the/base"});
        },
        read);
    CHECK(text_of(folder(i) + "/adapter_model.safetensors") == weights);
    CHECK(text_of(folder(i) + "/adapter_config.json") == text_of(folder(0) + "/adapter_config.json"));
  }
}

TEST_CASE("merged: the same logits without adapters, in files and in the model, and the bits of before come back") {
  const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5, 9, 2, 6};
  for (const Layout& layout : layouts) {
    TemporaryFolder place;
    const std::string folder = (place.path / "merged").string();
    std::vector<double> adapted, merged, after;
    const LoraOptions drawn{.rank = 3, .alpha = 6, .up_deviation = 0.3};
    on(
        layout,
        [&](auto& model, const auto&, World& world) {
          const auto before = values_of(model);
          const auto first = model.logits(tokens);
          hugging_face::save(folder, model);
          if (values_of(model) != before) throw Error("save has changed the model");
          {
            const auto undone = hugging_face::merge_adapters(model);
            const auto second = model.logits(tokens);
            const auto now = values_of(model);
            if (now.at("model.layers.0.self_attn.q_proj.weight") == before.at("model.layers.0.self_attn.q_proj.weight"))
              throw Error("nothing was merged");
            for (const double b : now.at("model.layers.0.self_attn.q_proj.lora_B.weight"))
              if (b != 0) throw Error("an adapter is left");
            if (world.rank() == 0) adapted = first, merged = second;
          }
          if (values_of(model) != before) throw Error("the bits of before have not come back");
          auto kept = hugging_face::merge_adapters(model);
          kept.keep();
          kept.undo();
          const auto third = model.logits(tokens);
          if (world.rank() == 0) after = third;
        },
        drawn);
    CHECK(difference(merged, adapted) < 1e-5);
    CHECK(difference(after, adapted) < 1e-5);
    const auto config = hugging_face::read_config<models::LlamaConfig>(folder);
    const auto plain = [&](const std::string& from, bool close) {
      DefaultDevice device;
      SingleDevice<models::Llama> model(device, config, {.seed = 9});
      hugging_face::load(from, model);
      CHECK((difference(model.logits(tokens), adapted) < 1e-5) == close);
    };
    plain(folder, true);
  }
}

TEST_CASE("merged into Conv1D's transposed weights, and beside a base that was loaded") {
  const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5, 9, 2, 6};
  const models::GptConfig config{.vocabulary = batch_vocabulary, .layers = 2, .width = 16, .heads = 4, .sequence = batch_length};
  TemporaryFolder place;
  const std::string folder = (place.path / "merged").string(), base = (place.path / "base").string();
  const LoraOptions drawn{.rank = 3, .alpha = 6, .up_deviation = 0.3};
  DefaultDevice device;
  SingleDevice<models::Gpt> plain(device, config, {.seed = 11});
  hugging_face::save(base, plain);
  std::vector<double> adapted;
  on<Dense<models::BasicGpt<float, Lora>>>(
      {2, {.tp = 2}},
      [&](auto& model, const auto&, World& world) {
        const auto before = values_of(model);
        hugging_face::load(base, model);
        for (const auto& [name, values] : values_of(model))
          if ((values == before.at(name)) !=
              (detail::is_adapter(name) || name.ends_with(".bias") || name.find("ln_") != name.npos))
            throw Error("loading the base has changed an adapter, or not the base: " + name);
        const auto logits = model.logits(tokens);
        if (world.rank() == 0) adapted = logits;
        hugging_face::save(folder, model);
      },
      drawn, config);
  CHECK(difference(plain.logits(tokens), adapted) > 1e-2);
  hugging_face::load(folder, plain);
  CHECK(difference(plain.logits(tokens), adapted) < 1e-5);
}

TEST_CASE("a run with adapters goes on from its checkpoint with the same bits") {
  for (const Layout& layout : layouts) {
    TemporaryFolder place;
    const std::string folder = (place.path / "run").string();
    std::map<std::string, std::vector<double>> whole, resumed;
    on(layout, [&](auto& model, const auto& mesh, World& world) {
      optim::AdamW optimizer(model, {.learning_rate = 1e-2});
      for (std::uint64_t at = 0; at < 4; ++at) {
        if (at == 2) checkpoint::save(folder, model, optimizer, at);
        step(model, optimizer, mesh, at);
      }
      auto values = values_of(model);
      if (world.rank() == 0) whole = std::move(values);
    });
    on(layout, [&](auto& model, const auto& mesh, World& world) {
      optim::AdamW optimizer(model, {.learning_rate = 1e-2});
      for (std::uint64_t at = checkpoint::load(folder, model, optimizer); at < 4; ++at) step(model, optimizer, mesh, at);
      auto values = values_of(model);
      if (world.rank() == 0) resumed = std::move(values);
    });
    CHECK(!whole.empty());
    CHECK(resumed == whole);
  }
}

TEST_CASE("adapters that do not fit are refused by name") {
  TemporaryFolder place;
  const std::string folder = (place.path / "a").string(), config_path = folder + "/adapter_config.json";
  DefaultDevice device;
  using Alone = SingleDevice<models::BasicLlama<float, Lora>>;
  Alone model(device, small, {.lora = adapters});
  hugging_face::save_adapters(folder, model);
  const auto refused = [&](LoraOptions lora) {
    Alone other(device, small, {.lora = std::move(lora)});
    return message<checkpoint::Error>([&] { hugging_face::load_adapters(folder, other); });
  };
  const auto says = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != text.npos);
  };
  CHECK(refused(adapters).empty());
  says(refused({.rank = 3, .alpha = 6, .match = adapters.match}), "says r 2, and this model's adapters are of rank 3");
  says(refused({.rank = 2, .alpha = 4, .match = adapters.match}), "says lora_alpha 6, and this model has 4");
  says(refused({.rank = 2, .alpha = 6, .match = {"*.q_proj"}}), "it has 6 tensors that this one has not");
  says(refused({.rank = 2, .alpha = 6}), "it lacks");
  Alone plain(device, small, {});
  says(message<UsageError>([&] { hugging_face::save_adapters(folder, plain); }),
       "the model has no adapters: ModelOptions::lora.rank is 0");
  const std::string text = text_of(config_path);
  const auto with = [&](const char* name, const nlohmann::json& value) {
    auto config = nlohmann::json::parse(text);
    config[name] = value;
    std::ofstream(config_path) << config.dump();
    return message<checkpoint::Error>([&] { hugging_face::read_adapter_config(folder); });
  };
  says(with("peft_type", "IA3"), "peft_type is \"IA3\"");
  says(with("use_rslora", true), "use_rslora is true");
  says(with("bias", "all"), "bias is \"all\"");
  says(with("rank_pattern", {{"q_proj", 4}}), "all adapters have one rank");
  says(with("modules_to_save", {"lm_head"}), "modules_to_save");
  says(with("target_modules", ".*q_proj"), "target_modules");
  says(with("target_modules", nullptr), "target_modules is null: a list of layers is meant");
  says(with("target_modules", nlohmann::json::array()), "target_modules is []: a list of layers is meant");
  says(with("target_modules", {1}), "target_modules is [1]: a list of texts is meant");
  CHECK(with("target_parameters", nlohmann::json::array()).empty());  // PEFT writes it for a mixture of experts
  says(with("target_parameters", {"experts.down_proj"}), "target_parameters is [\"experts.down_proj\"]");
  says(with("lora_dropout", 2), "lora_dropout is 2: a number of [0, 1) is meant");
  says(with("r", 1'000'000'000), "q_proj.lora_A.weight: is [2, 16], and r is 1000000000 in adapter_config.json");
  for (const char* name : {"target_modules", "r", "lora_alpha"}) {
    auto config = nlohmann::json::parse(text);
    config.erase(name);
    std::ofstream(config_path) << config.dump();
    says(message<checkpoint::Error>([&] { hugging_face::read_adapter_config(folder); }), std::string("lacks ") + name);
  }
}
