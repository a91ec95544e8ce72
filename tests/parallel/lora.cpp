// SPDX-License-Identifier: Apache-2.0
// Models with low-rank adapters give the losses, norms, gradients and values of one rank in every kind of layout, and their base
// keeps its bits.

#include "support/adapters.hpp"
#include "support/message.hpp"

using namespace weft_test;

namespace {

template <class Model>
using Rings = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>>>>;
template <class Model>
using RowsCut = FullyShardedDataParallel<ContextParallel<SequenceParallel<PipelineParallel<Model>>, Ulysses>>;

models::GptConfig small_gpt() {
  models::GptConfig config = gpt_config();
  config.layers = 4;
  return config;
}
models::LlamaConfig small_llama() {
  models::LlamaConfig config = llama_config();
  config.layers = 4;
  return config;
}

}  // namespace

TEST_CASE("GPT-2, adapters beside every linear layer") {
  check_adapters<Rings<models::BasicGpt<double, Lora>>>(small_gpt(), adapters({"*"}), 4 * 4,
                                                        {{2, {}, 2, "1f1b", 0},
                                                         {2, {}, 2, "1f1b", 1},
                                                         {4, {}, 1, "1f1b", 3},
                                                         {2, {.tp = 2}, 2, "1f1b", 0},
                                                         {4, {.tp = 2}, 2, "1f1b", 3},
                                                         {2, {.cp = 2}, 2, "1f1b", 0},
                                                         {4, {.tp = 2, .cp = 2}, 2, "1f1b", 2},
                                                         {2, {.pp = 2}, 4, "zb-h1", 0},
                                                         {2, {.pp = 2}, 4, "zb-h1", 3},
                                                         {8, {.tp = 2, .pp = 2}, 4, "zbv", 2}});
}
TEST_CASE("Llama, adapters beside some, rows cut over tp, key-value heads fewer than its ranks") {
  check_adapters<RowsCut<models::BasicLlama<double, Lora>>>(
      small_llama(), adapters({"*.q_proj", "*.k_proj", "model.layers.?.mlp.down_proj"}), 4 * 3,
      {{2, {.tp = 2}, 2, "1f1b", 0},
       {4, {.tp = 4}, 2, "1f1b", 0},
       {4, {.tp = 2}, 2, "1f1b", 3},
       {4, {.tp = 2, .cp = 2}, 2, "1f1b", 1},
       {8, {.tp = 2, .pp = 2}, 4, "interleaved-zb", 2}});
}

TEST_CASE("a pattern that names no adapter's layer, and a model's type without adapters") {
  DefaultDevice device;
  const auto refused = [&]<class Model>(std::type_identity<Model>, std::vector<std::string> match) {
    return message<UsageError>([&] { SingleDevice<Model>(device, small_llama(), {.lora = adapters(std::move(match))}); });
  };
  const std::string near = refused(std::type_identity<models::BasicLlama<double, Lora>>(), {"*.q_proj", "*.query"});
  CHECK(near.find("ModelOptions::lora.match") != near.npos);
  CHECK(near.find("*.query") != near.npos);
  const std::string plain = refused(std::type_identity<models::BasicLlama<double>>(), {"*"});
  CHECK(plain.find("names no layer that takes an adapter: the model's type names those that do") != plain.npos);
  CHECK(refused(std::type_identity<models::BasicLlama<double, Lora>>(), {}).find("lora.match names no layers") != plain.npos);
}
