// SPDX-License-Identifier: Apache-2.0
// covers: weft/hugging_face/hugging_face.hpp weft/hugging_face/load.hpp weft/hugging_face/save.hpp
// covers: weft/hugging_face/stop_tokens.hpp weft/hugging_face/weights.hpp
// Folders of `transformers`: written by one layout and read by others with the same bits, hand-made with every spelling, and
// refused ones. test_transformers.py compares logits.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/checkpoint/checkpoint.hpp>
#include <weft/hugging_face/hugging_face.hpp>
#include <weft/hugging_face/load.hpp>
#include <weft/hugging_face/save.hpp>
#include <weft/hugging_face/stop_tokens.hpp>
#include <weft/hugging_face/weights.hpp>

#include "support/experts.hpp"
#include "support/matrix.hpp"
#include "support/temporary_folder.hpp"
#include "support/transformers_folders.hpp"

using namespace weft_test;

namespace {

template <class Model>
using Dense = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;
using Experts = FullyShardedDataParallel<TensorParallel<ExpertParallel<PipelineParallel<models::Mixtral>>>>;
using Grid = Mesh<dp, tp, pp>;

struct Layout {
  std::size_t world;
  Degrees degrees;
  int zero = 0;
  const char* schedule = "1f1b";
};
ModelOptions options_of(const Layout& layout, std::uint64_t seed) {
  ModelOptions options;
  options.seed = seed;
  options.shard.stage = layout.zero;
  options.pipeline.schedule = schedule::choose(layout.schedule);
  return options;
}
template <class Composition, class Axes, class F>
void on(const Layout& layout, const typename Composition::Config& config, std::uint64_t seed, F&& f) {
  CHECK(runtime::run(runtime::RunOptions{.ranks = int(layout.world)}, [&](World& world) {
          Axes mesh(world, layout.degrees);
          Composition model(mesh, config, options_of(layout, seed));
          f(model, world);
        }) == 0);
}

/// Every layout writes a folder, the next one reads it and writes another: the same bytes in both files.
template <class Composition, class Axes>
void check_layouts(const std::vector<Layout>& layouts, const typename Composition::Config& config) {
  TemporaryFolder place;
  const auto folder = [&](std::size_t i) { return (place.path / std::to_string(i)).string(); };
  on<Composition, Axes>(layouts[0], config, 7, [&](auto& model, World&) { hugging_face::save(folder(0), model); });
  const std::string weights = text_of(folder(0) + "/model.safetensors"), text = text_of(folder(0) + "/config.json");
  for (std::size_t i = 1; i < layouts.size(); ++i) {
    INFO("layout " << i);
    const auto read = hugging_face::read_config<typename Composition::Config>(folder(i - 1));
    on<Composition, Axes>(layouts[i], read, 8 + i, [&](auto& model, World&) {
      optim::AdamW optimizer(model, {.learning_rate = 0.1});
      if (i % 2 == 0) hugging_face::load(folder(i - 1), model);
      else hugging_face::load(folder(i - 1), model, optimizer);
      hugging_face::save(folder(i), model);
    });
    CHECK(text_of(folder(i) + "/model.safetensors") == weights);
    CHECK(text_of(folder(i) + "/config.json") == text);
    CHECK(checkpoint::detail::names_in(folder(i)) == std::vector<std::string>{"config.json", "model.safetensors"});
  }
}

const std::vector<Layout> dense = {
    {1, {}}, {4, {.tp = 2}, 3}, {4, {.tp = 2, .pp = 2}, 0, "zbv"}, {2, {}, 1}, {4, {.pp = 2}, 3, "interleaved"}, {4, {.tp = 4}}};

models::GptConfig gpt() {
  return {.vocabulary = 19, .layers = 4, .width = 16, .heads = 4, .sequence = 8, .standard_deviation = 0.2};
}
models::LlamaConfig llama(bool tied = false) {
  return {.vocabulary = 19,
          .layers = 4,
          .width = 16,
          .heads = 4,
          .kv_heads = 2,
          .intermediate = 12,
          .sequence = 8,
          .epsilon = 1e-6,
          .rope_base = 500,
          .standard_deviation = 0.2,
          .tied = tied};
}

// A folder by hand: tensors of 16 or 32 bits with a number for each element.
struct ByHand {
  std::string type = "F32";
  std::map<std::string, std::vector<std::size_t>> shapes;
  std::map<std::string, std::function<float(std::size_t)>> values = {};

  static std::string bytes_of(const std::string& type, float value) {
    std::uint32_t wide;
    std::memcpy(&wide, &value, 4);
    if (type == "F32") return {reinterpret_cast<const char*>(&wide), 4};
    std::uint16_t narrow = std::uint16_t(wide >> 16);  // numbers that bfloat16 has
    if (type == "F16") narrow = float16(value).bits;
    return {reinterpret_cast<const char*>(&narrow), 2};
  }
  float value(const std::string& name, std::size_t i) const {
    const auto at = values.find(name);
    return at != values.end() ? at->second(i) : float((i * 7 + name.size()) % 61) / 64;
  }
  std::string text() const {
    std::string header = "{", data;
    for (const auto& [name, shape] : shapes) {
      const std::size_t begin = data.size();
      std::size_t elements = 1;
      std::string extents;
      for (const std::size_t extent : shape) {
        elements *= extent;
        extents += (extents.empty() ? "" : ",") + std::to_string(extent);
      }
      for (std::size_t i = 0; i < elements; ++i) data += bytes_of(type, value(name, i));
      header += (header.size() > 1 ? "," : "") + std::string("\"") + name + "\":{\"dtype\":\"" + type + "\",\"shape\":[" +
                extents + "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
    }
    header += "}";
    std::string length;
    for (std::size_t i = 0; i < 8; ++i) length += char(header.size() >> (8 * i) & 255);
    return length + header + data;
  }
};

ByHand gpt_by_hand(const std::string& prefix) {
  ByHand made;
  made.shapes[prefix + "wte.weight"] = {19, 16};
  made.shapes[prefix + "wpe.weight"] = {8, 16};
  made.shapes[prefix + "ln_f.weight"] = made.shapes[prefix + "ln_f.bias"] = {16};
  for (const char* layer : {"h.0.", "h.1."}) {
    for (const char* norm : {"ln_1.", "ln_2."})
      for (const char* kind : {"weight", "bias"}) made.shapes[prefix + layer + norm + kind] = {16};
    const std::vector<std::pair<const char*, std::pair<std::size_t, std::size_t>>> products = {
        {"attn.c_attn.", {16, 48}}, {"attn.c_proj.", {16, 16}}, {"mlp.c_fc.", {16, 64}}, {"mlp.c_proj.", {64, 16}}};
    for (const auto& [name, sizes] : products) {
      made.shapes[prefix + layer + name + "weight"] = {sizes.first, sizes.second};  // [in, out]
      made.shapes[prefix + layer + name + "bias"] = {sizes.second};
    }
  }
  return made;
}
}  // namespace

TEST_CASE("GPT: every layout reads the folder of another one, with the same bits") {
  check_layouts<Dense<models::Gpt>, Grid>(dense, gpt());
}
TEST_CASE("Llama, tied and not") {
  check_layouts<Dense<models::Llama>, Grid>(dense, llama());
  check_layouts<Dense<models::Llama>, Grid>({dense[0], dense[2], dense[1]}, llama(true));
}
TEST_CASE("bfloat16, with master copies beside the values and in place of them") {
  check_layouts<Dense<models::BasicGpt<bfloat16>>, Grid>({dense[0], dense[1], dense[3], dense[2]}, gpt());
}
TEST_CASE("Mixtral over experts") {
  auto config = mixtral_config();
  config.z_loss = config.dropout = 0;
  check_layouts<Experts, ExpertMesh>(
      {{1, {}}, {2, {.ep = 2}}, {4, {.tp = 2, .ep = 4}, 1}, {2, {.etp = 2}, 3}, {4, {.ep = 2, .pp = 2}, 0, "zbv"}}, config);
}

TEST_CASE("GPT by hand: with a prefix and without, mask buffers, three types, one file and shards") {
  for (const std::string prefix : {"", "transformer."})
    for (const std::string type : {"F32", "BF16", "F16"})
      for (const bool sharded : {false, true}) {
        INFO(prefix << type << sharded);
        TemporaryFolder place;
        const std::string folder = place.path.string();
        ByHand made = gpt_by_hand(prefix);
        made.type = type;
        for (const char* layer : {"h.0.", "h.1."}) {
          made.shapes[prefix + layer + "attn.bias"] = {1, 1, 8, 8};
          made.shapes[prefix + layer + "attn.masked_bias"] = {};
        }
        made.shapes["lm_head.weight"] = {19, 16};
        made.values["lm_head.weight"] = [&made, prefix](std::size_t i) { return made.value(prefix + "wte.weight", i); };
        write(folder + "/config.json", gpt_json().dump());
        if (sharded) {
          ByHand first = made, second = made;
          nlohmann::json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", nlohmann::json::object()}};
          for (const auto& [name, shape] : made.shapes) {
            const bool in_first = name.find("mlp") != name.npos;
            (in_first ? second : first).shapes.erase(name);
            index["weight_map"][name] = in_first ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
          }
          write(folder + "/model-00001-of-00002.safetensors", first.text());
          write(folder + "/model-00002-of-00002.safetensors", second.text());
          write(folder + "/model.safetensors.index.json", index.dump());
        } else {
          write(folder + "/model.safetensors", made.text());
        }
        const auto config = hugging_face::read_config<models::GptConfig>(folder);
        CHECK(config.epsilon == 1e-5);
        on<Dense<models::Gpt>, Grid>({4, {.tp = 2, .pp = 2}}, config, 3, [&](auto& model, World&) {
          hugging_face::load(folder, model);
          for (const auto& [name, shape] : made.shapes) {
            if (name.find("attn.bias") == name.find("attn.") && name.find("attn.bias") != name.npos) continue;
            if (name.find("masked") != name.npos || name == "lm_head.weight") continue;
            const std::vector<double> values = model.parameter(prefix.empty() ? "transformer." + name : name);
            for (std::size_t i = 0; i < values.size(); ++i) REQUIRE(values[i] == double(made.value(name, i)));
          }
        });
        made.values["lm_head.weight"] = [](std::size_t) { return 1.0f; };
        if (!sharded) write(folder + "/model.safetensors", made.text());
        if (!sharded)
          on<Dense<models::Gpt>, Grid>({2, {}}, config, 3, [&](auto& model, World&) {
            CHECK(message_of([&] { hugging_face::load(folder, model); }).find("lm_head.weight: differs from") !=
                  std::string::npos);
          });
      }
}

TEST_CASE("bfloat16 with an optimizer: values are rounded, master copies are not") {
  TemporaryFolder place;
  const std::string folder = place.path.string();
  ByHand made = gpt_by_hand("transformer.");
  const auto exact = [](std::size_t i) { return float(i + 1) / 7; };
  for (const auto& [name, shape] : made.shapes) made.values[name] = exact;
  write(folder + "/config.json", gpt_json().dump());
  write(folder + "/model.safetensors", made.text());
  const auto config = hugging_face::read_config<models::GptConfig>(folder);
  for (const Layout& layout : {Layout{2, {}, 0}, Layout{2, {}, 3}, Layout{4, {.tp = 2}, 1}})
    on<Dense<models::BasicGpt<bfloat16>>, Grid>(layout, config, 3, [&](auto& model, World&) {
      optim::AdamW optimizer(model, {.learning_rate = 0.1});
      hugging_face::load(folder, model, optimizer);
      CHECK(model.parameter("transformer.wte.weight")[10] == doctest::Approx(double(float(bfloat16(exact(10))))));
      std::size_t compared = 0;
      for (const auto& item : checkpoint::detail::state_of(model, optimizer).items) {
        if (item.kind != "parameter") continue;
        REQUIRE(item.type == checkpoint::StoredType::f32);
        const auto bytes = item.read();
        for (const auto& run : item.runs)
          for (std::size_t i = 0; i < run.length; ++i, ++compared) {
            float value;
            std::memcpy(&value, bytes.data + (run.local + i) * 4, 4);
            REQUIRE(value == exact(run.global + i));
          }
      }
      CHECK(compared > 1000);
    });
}

TEST_CASE("weights that are not the model's are refused, and nothing has changed") {
  TemporaryFolder place;
  const std::string folder = place.path.string();
  write(folder + "/config.json", gpt_json().dump());
  const auto config = hugging_face::read_config<models::GptConfig>(folder);
  const auto refused = [&](const char* text, std::function<void(ByHand&)> change, const std::string& type = "F32") {
    ByHand made = gpt_by_hand("transformer.");
    made.type = type;
    change(made);
    write(folder + "/model.safetensors", made.text());
    on<Dense<models::Gpt>, Grid>({2, {.tp = 2}}, config, 3, [&](auto& model, World&) {
      const std::vector<double> before = model.parameter("transformer.wte.weight");
      const std::string said = message_of([&] { hugging_face::load(folder, model); });
      CHECK_MESSAGE(said.find(text) != std::string::npos, said);
      CHECK(model.parameter("transformer.wte.weight") == before);
    });
  };
  refused("it lacks 1 tensors of this one: transformer.h.1.mlp.c_fc.bias",
          [](ByHand& made) { made.shapes.erase("transformer.h.1.mlp.c_fc.bias"); });
  refused("it has 1 tensors that this one has not: transformer.h.1.mlp.gate.weight",
          [](ByHand& made) { made.shapes["transformer.h.1.mlp.gate.weight"] = {2}; });
  refused("transformer.h.0.mlp.c_fc.weight: is [64, 16], and [16, 64] in this model", [](ByHand& made) {
    made.shapes["transformer.h.0.mlp.c_fc.weight"] = {64, 16};
  });
  refused(
      "is of type I16, which does not fit into a parameter of type F32", [](ByHand&) {}, "I16");

  write(folder + "/model.safetensors", gpt_by_hand("").text());
  const auto said_by = [&](models::GptConfig other) {
    std::string said;
    on<Dense<models::Gpt>, Grid>({1, {}}, other, 3,
                                 [&](auto& model, World&) { said = message_of([&] { hugging_face::load(folder, model); }); });
    return said;
  };
  models::GptConfig other = config;
  other.epsilon = 1e-6;
  CHECK(said_by(other).find("says epsilon 1e-05, and this model has 1e-06") != std::string::npos);
  other = config;
  other.heads = 2;
  CHECK(said_by(other).find("says heads 4, and this model has 2") != std::string::npos);
  std::filesystem::remove(folder + "/model.safetensors");
  CHECK(said_by(config).find("has neither model.safetensors nor model.safetensors.index.json") != std::string::npos);
  write(folder + "/model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../b\"}}");
  CHECK(said_by(config).find("only plain names are allowed") != std::string::npos);
  write(folder + "/part", gpt_by_hand("").text());
  write(folder + "/model.safetensors.index.json", "{\"weight_map\":{\"wte.weight\":\"part\"}}");
  CHECK(said_by(config).find("is in this file, and not by model.safetensors.index.json") != std::string::npos);

  // A number that float16 does not have.
  std::filesystem::remove(folder + "/model.safetensors.index.json");
  ByHand large = gpt_by_hand("");
  large.values["ln_f.weight"] = [](std::size_t) { return 1e6f; };
  write(folder + "/model.safetensors", large.text());
  on<Dense<models::BasicGpt<float16>>, Grid>({1, {}}, config, 3, [&](auto& model, World&) {
    CHECK(message_of([&] { hugging_face::load(folder, model); }).find("has 1e+06, and the model's float16 ends at 65504") !=
          std::string::npos);
  });
}

TEST_CASE("an export keeps the ids of tokens and the generation config of the folder that was loaded") {
  TemporaryFolder place;
  const std::string folder = place.path.string() + "/one", out = place.path.string() + "/two";
  std::filesystem::create_directory(folder);
  nlohmann::json json = gpt_json();
  json.update({{"bos_token_id", 1}, {"eos_token_id", {2, 3}}, {"pad_token_id", 0}, {"resid_pdrop", 0.1}});
  const std::string generation = "{\"eos_token_id\": [4, 5], \"temperature\": 0.6}\n";
  write(folder + "/config.json", json.dump());
  write(folder + "/generation_config.json", generation);
  write(folder + "/model.safetensors", gpt_by_hand("").text());
  models::GptConfig by_hand{.vocabulary = 19, .layers = 2, .width = 16, .heads = 4, .sequence = 8};
  for (const auto& config : {hugging_face::read_config<models::GptConfig>(folder), by_hand}) {
    std::filesystem::remove_all(out);
    on<Dense<models::Gpt>, Grid>({2, {.tp = 2}}, config, 3, [&](auto& model, World&) {
      hugging_face::load(folder, model);
      hugging_face::save(out, model);
    });
    const auto written = nlohmann::json::parse(text_of(out + "/config.json"));
    for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id", "resid_pdrop", "n_inner", "n_ctx"})
      CHECK(written.at(name) == json.at(name));
    CHECK(text_of(out + "/generation_config.json") == generation);
    CHECK(hugging_face::stop_tokens(out) == std::vector<std::int32_t>{4, 5});
  }
  // A run that resumes from a checkpoint does not read the folder again.
  const std::string run = place.path.string() + "/run";
  on<Dense<models::Gpt>, Grid>({1, {}}, by_hand, 3, [&](auto& model, World&) {
    hugging_face::load(folder, model);
    checkpoint::save(run, model, 1);
  });
  std::filesystem::remove_all(out);
  on<Dense<models::Gpt>, Grid>({2, {.tp = 2}}, by_hand, 3, [&](auto& model, World&) {
    checkpoint::load(run, model);
    hugging_face::save(out, model);
  });
  const auto resumed = nlohmann::json::parse(text_of(out + "/config.json"));
  for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id", "resid_pdrop", "n_inner", "n_ctx"})
    CHECK(resumed.value(name, nlohmann::json("lost")) == json.at(name));
  CHECK(text_of(out + "/generation_config.json") == generation);
  on<Dense<models::Gpt>, Grid>({1, {}}, by_hand, 3, [&](auto& model, World&) {  // a folder's own texts stay
    write(folder + "/generation_config.json", "{}");
    hugging_face::load(folder, model);
    checkpoint::load(run, model);
    CHECK(model.stages().config().files.generation == "{}");
  });
  write(folder + "/generation_config.json", "{\"eos_token_id\": ");
  CHECK(message_of([&] { hugging_face::read_config<models::GptConfig>(folder); }).find("is not the JSON that it should be") !=
        std::string::npos);
}

// Each model has its config from before the weights, and every layout writes and reads them with the same bits.
TEST_CASE("GPT-2 with another activation and width and a last projection of its own; windows of some layers") {
  models::GptConfig other = gpt();
  other.activation = MlpActivation::relu;
  other.intermediate = 24;
  other.tied = false;
  check_layouts<Dense<models::Gpt>, Grid>({dense[0], dense[2], dense[1]}, other);
  models::LlamaConfig ministral = llama();
  ministral.mask.window = 3;
  ministral.window_layers = {true, false, true, false};
  check_layouts<Dense<models::Llama>, Grid>({dense[0], dense[2]}, ministral);
}

// A disk whose k-th read fails, on a system that has no call to bring bytes in.
struct Failing : checkpoint::FileSystem {
  std::atomic<long> left;
  explicit Failing(long reads) : left(reads) {}
  int bring_in(int, std::uint64_t, std::size_t) override { return -1; }
  ::ssize_t read_at(int file, void* bytes, std::size_t size, std::uint64_t offset) override {
    if (left.fetch_sub(1) == 0) return errno = EIO, -1;
    return FileSystem::read_at(file, bytes, size, offset);
  }
};

TEST_CASE("a disk that fails: nothing has changed, or the error reports a partial change") {
  TemporaryFolder place;
  const std::string folder = place.path.string();
  write(folder + "/config.json", gpt_json().dump());
  write(folder + "/model.safetensors", gpt_by_hand("").text());
  const auto config = hugging_face::read_config<models::GptConfig>(folder);
  std::size_t before_any = 0, after_some = 0;
  for (long k = 0;; ++k) {
    bool ended = false;
    on<Dense<models::Gpt>, Grid>({1, {}}, config, 3, [&](auto& model, World&) {
      const auto values = [&] {
        std::map<std::string, std::vector<double>> all;
        for (const auto& item : checkpoint::detail::state_of(model).items) all[item.name] = model.parameter(item.name);
        return all;
      };
      const auto before = values();
      Failing system(k);
      const std::string said = message_of([&] { hugging_face::load(folder, model, {.system = &system}); });
      ended = said == "no error";
      if (ended) return;
      CHECK_MESSAGE(said.find("Input/output error") != std::string::npos, said);
      const bool changed = said.find("some parameters have changed: load again, or end") != std::string::npos;
      ++(changed ? after_some : before_any);
      if (!changed) CHECK(values() == before);
      hugging_face::load(folder, model);
      CHECK(values() != before);
    });
    if (ended) break;
  }
  CHECK(before_any > 20);
  CHECK(after_some > 20);
}

TEST_CASE("large tensors: runs longer than a read, and far from each other") {
  struct Cut {
    std::size_t rows, columns, first, count;  // each row's columns [first, first + count)
  };
  for (const std::string type : {"F32", "BF16", "F16"})
    for (const Cut cut : {Cut{1, 700001, 0, 700001}, Cut{1, 700001, 3, 699990}, Cut{700, 1000, 250, 250},
                          Cut{30, 20000, 5000, 5000}, Cut{3, 300000, 1, 299998}, Cut{40, 9000, 8999, 1}}) {
      INFO(type << " [" << cut.rows << ", " << cut.columns << "] from " << cut.first << ", " << cut.count);
      TemporaryFolder place;
      ByHand made;
      made.type = type;
      made.shapes["model.norm.weight"] = {cut.rows, cut.columns};
      made.values["model.norm.weight"] = [](std::size_t i) { return float(i % 251); };
      write(place.path.string() + "/model.safetensors", made.text());
      const auto weights = hugging_face::detail::Weights::open(place.path.string(), "llama", false);
      checkpoint::detail::Item item;
      item.name = "model.norm.weight";
      item.size = cut.rows * cut.count;
      for (std::size_t row = 0; row < cut.rows; ++row)
        item.runs.push_back({.local = row * cut.count, .global = row * cut.columns + cut.first, .length = cut.count});
      std::vector<float> read(item.size);
      std::vector<std::byte> buffer;
      hugging_face::detail::read_weight(weights, *weights.find(item.name), item, checkpoint::StoredType::f32,
                                        std::as_writable_bytes(std::span(read)).data(), buffer);
      for (std::size_t i = 0; i < read.size(); ++i) {
        const std::size_t at = i / cut.count * cut.columns + cut.first + i % cut.count;
        REQUIRE(read[i] == float(at % 251));
      }
      CHECK(buffer.size() <= 1u << 20);
      std::vector<double> wide(item.size);
      hugging_face::detail::read_weight(weights, *weights.find(item.name), item, checkpoint::StoredType::f64,
                                        std::as_writable_bytes(std::span(wide)).data(), buffer);
      CHECK(std::equal(read.begin(), read.end(), wide.begin()));
    }
}

TEST_CASE("Mixtral with noise in its router is evaluated, and not trained") {
  models::MixtralConfig config = mixtral_config();
  config.router_jitter = 0.1;
  on<Experts, ExpertMesh>({2, {}}, config, 7, [&](auto& model, World& world) {
    const auto batch = make_batch(0, std::size_t(world.rank()), 2, 1);
    CHECK(std::isfinite(model.evaluate(batch)));
    CHECK(message_of([&] { model.train_step(batch); }).find("router_jitter_noise is 0.1") != std::string::npos);
  });
  config.router_jitter = 0;
  on<Experts, ExpertMesh>({2, {}}, config, 7, [&](auto& model, World& world) {
    CHECK(std::isfinite(model.train_step(make_batch(0, std::size_t(world.rank()), 2, 1))));
  });
}

TEST_CASE("Mixtral: all experts in one tensor, and what `transformers` does not have is not written") {
  models::MixtralConfig config = mixtral_config();
  config.z_loss = config.dropout = 0;
  config.layers = 1;
  TemporaryFolder place;
  const std::string folder = (place.path / "one").string();
  std::vector<double> w1, w3, w2;
  on<Experts, ExpertMesh>({1, {}}, config, 7, [&](auto& model, World&) {
    hugging_face::save(folder, model);
    const std::string expert = "model.layers.0.block_sparse_moe.experts.5.";
    w1 = model.parameter(expert + "w1.weight");
    w3 = model.parameter(expert + "w3.weight");
    w2 = model.parameter(expert + "w2.weight");
  });
  // The same with fused experts, by hand.
  const auto file = checkpoint::Safetensors::open(folder + "/model.safetensors");
  std::map<std::string, std::vector<float>> tensors;
  ByHand fused;
  for (const auto& tensor : file.tensors()) {
    auto& values = tensors[tensor.name];
    values.resize(tensor.bytes() / 4);
    file.read(tensor, std::as_writable_bytes(std::span(values)));
    if (tensor.name.find("experts") != std::string::npos) continue;
    std::string name = tensor.name;
    if (const auto at = name.find("block_sparse_moe"); at != name.npos) name.replace(at, 16, "mlp");
    fused.shapes[name] = tensor.shape;
    fused.values[name] = [values](std::size_t i) { return values[i]; };
  }
  const std::size_t width = config.width, inner = config.intermediate;
  const std::string experts = "model.layers.0.block_sparse_moe.experts.";
  fused.shapes["model.layers.0.mlp.experts.gate_up_proj"] = {8, 2 * inner, width};
  fused.values["model.layers.0.mlp.experts.gate_up_proj"] = [&](std::size_t i) {
    const std::size_t expert = i / (2 * inner * width), rest = i % (2 * inner * width);
    return tensors.at(experts + std::to_string(expert) +
                      (rest < inner * width ? ".w1.weight" : ".w3.weight"))[rest % (inner * width)];
  };
  fused.shapes["model.layers.0.mlp.experts.down_proj"] = {8, width, inner};
  fused.values["model.layers.0.mlp.experts.down_proj"] = [&](std::size_t i) {
    return tensors.at(experts + std::to_string(i / (inner * width)) + ".w2.weight")[i % (inner * width)];
  };
  write(folder + "/model.safetensors", fused.text());
  const auto read = hugging_face::read_config<models::MixtralConfig>(folder);
  CHECK(read.auxiliary_loss == doctest::Approx(config.auxiliary_loss));
  on<Experts, ExpertMesh>({4, {.ep = 2, .etp = 2}}, read, 9, [&](auto& model, World&) {
    hugging_face::load(folder, model);
    CHECK(model.parameter(experts + "5.w1.weight") == w1);
    CHECK(model.parameter(experts + "5.w3.weight") == w3);
    CHECK(model.parameter(experts + "5.w2.weight") == w2);
  });

  const auto not_written = [&](auto change, const char* text) {
    models::MixtralConfig other = config;
    change(other);
    on<Experts, ExpertMesh>({2, {}}, other, 7, [&](auto& model, World&) {
      const std::string said = message_of([&] { hugging_face::save((place.path / "no").string(), model); });
      CHECK_MESSAGE(said.find(text) != std::string::npos, said);
    });
    CHECK_FALSE(std::filesystem::exists(place.path / "no"));
  };
  not_written([](auto& c) { c.scores = nn::Scores::before_top_k; }, "the router's weights do not add up to 1");
  not_written([](auto& c) { c.bias_rate = 0.1; }, "the router has a bias");
  not_written([](auto& c) { c.drop = nn::Drop::by_position, c.capacity_factor = 1; }, "the router drops tokens");
}
