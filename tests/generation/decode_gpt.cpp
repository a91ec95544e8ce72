// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/decode.hpp weft/context/key_value_cache.hpp weft/nn/cached_attention.hpp weft/generation/generate.hpp
// GPT, with learned positions, decodes with a cache to the same logits as its whole forward, in every layout; and the errors of
// decode.

#include <weft/context/key_value_cache.hpp>
#include <weft/generation/generate.hpp>
#include <weft/nn/cached_attention.hpp>
#include <weft/pipeline/decode.hpp>

#include "generation/decoding.hpp"
#include "support/message.hpp"

using namespace weft_test;

namespace {
using Model = models::BasicGpt<double>;
models::GptConfig config_of() {
  models::GptConfig config = gpt_config();
  config.layers = 4;
  return config;
}
}  // namespace

TEST_CASE("GPT decodes with a cache as its whole forward does") {
  check_decoding<FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>, Mesh<dp, tp, pp>>(
      config_of(),
      {{2, {.tp = 2}},
       {2, {.pp = 2}},
       {2, {.pp = 2}, "interleaved"},
       {2, {}},
       {4, {.tp = 2, .pp = 2}},
       {4, {.tp = 2, .pp = 2}, "zbv"}},
      1e-12);
}

TEST_CASE("tokens beyond the room of a cache or model are refused, and the cache is unchanged") {
  DefaultDevice device;
  models::GptConfig config = config_of();
  config.layers = 1;
  config.sequence = 6;
  SingleDevice<Model> model(device, config);
  KeyValueCache cache(2, 8);
  const auto refused = [&]<class E>(std::type_identity<E>, const Sequences& tokens, const std::string& text) {
    CHECK(message<E>([&] { model.decode(cache, tokens); }) == "weft: " + text);
  };
  const std::type_identity<ShapeError> shape;
  const std::type_identity<UsageError> usage;
  model.decode(cache, Sequences{{1, 2, 3}, {4}});
  refused(shape, {{1, 2, 3, 4}, {}}, "a sequence of 7 tokens, but the model was made for at most 6 (sequence in its config)");
  refused(
      shape, {{1}, std::vector<std::int32_t>(8, 1)},
      "decode: sequence 1 has 1 tokens in the cache and gets 8 more, but the cache has room for 8 (capacity of KeyValueCache)");
  refused(usage, {{}, {}}, "decode of no tokens: at least one sequence has a new one");
  refused(usage, {{1}}, "decode of 1 sequences, but the cache is for 2: a sequence that rests has an empty vector");
  CHECK_THROWS_AS(model.decode(cache, Sequences{{std::int32_t(batch_vocabulary)}, {}}), UsageError);
  CHECK(std::vector<std::size_t>(cache.lengths().begin(), cache.lengths().end()) == std::vector<std::size_t>{3, 1});
  CHECK(cache.bytes() == 2 * 2 * 8 * (config.kv_heads * config.width / config.heads) * sizeof(double));
  CHECK(difference_of(model, model.decode(cache, Sequences{{5}, {6, 7}}), {{1, 2, 3, 5}, {4, 6, 7}}, {{5}, {6}}) <= 1e-12);
  CHECK_THROWS_AS(cache.truncate(0, 5), UsageError);
  CHECK_THROWS_AS(cache.truncate(2, 0), UsageError);
  CHECK_THROWS_AS(KeyValueCache(0, 4), UsageError);

  models::GptConfig wide = config;
  wide.width *= 2;
  SingleDevice<Model> other(device, wide);
  CHECK_THROWS_AS(other.decode(cache, Sequences{{1}, {}}), UsageError);
  models::GptConfig encoder = config;
  encoder.mask.causal = false;
  SingleDevice<Model> sees_all(device, encoder);
  KeyValueCache empty(1, 4);
  CHECK_THROWS_AS(sees_all.decode(empty, Sequences{{1}}), UsageError);
  CHECK(generate(model, Sequences{{1, 2, 3}, {1}})[1].size() ==
        3);  // the model has room for 6 tokens: a default of 64 is for others
  CHECK(message<UsageError>([&] {
          generate(model, Sequences{{1, 2, 3}}, {.max_new_tokens = 4});
        }) ==
        "weft: generate: prompt 0 of 3 tokens and max_new_tokens(4) are more than the 6 tokens that the model was made for "
        "(sequence in its config): at most 3 new ones");
  CHECK_THROWS_AS(generate(model, Sequences{{}}), UsageError);
  CHECK_THROWS_AS(generate(model, Sequences{}), UsageError);
}

TEST_CASE("generate ends at stop tokens, at a callback's request, and at its limit") {
  DefaultDevice device;
  models::GptConfig config = config_of();
  config.sequence = 16;
  SingleDevice<Model> model(device, config);
  const GenerateOptions plain{.max_new_tokens = 8, .sampling = {.temperature = 2, .seed = 3}};
  const Sequences all = generate(model, decoded_prompts, plain);
  for (const auto& one : all) CHECK(one.size() == 8);
  GenerateOptions stops = plain;
  stops.stop = {all[0][3], -5};
  const Sequences ended = generate(model, decoded_prompts, stops);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto end = std::find(all[i].begin(), all[i].end(), all[0][3]);
    CHECK(ended[i] == std::vector<std::int32_t>(all[i].begin(), end == all[i].end() ? end : end + 1));
  }
  GenerateOptions told = plain;
  std::size_t count = 0;
  told.each = [&](std::size_t, std::int32_t) { return ++count < 4; };
  CHECK(generate(model, decoded_prompts, told)[0].size() == 2);
}

TEST_CASE("ranks that pass other tokens, and cp, are refused") {
  models::GptConfig config = config_of();
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world, {.tp = 2});
          DataParallel<TensorParallel<PipelineParallel<Model>>> model(mesh, config);
          KeyValueCache cache(1, 4);
          CHECK_THROWS_AS(model.decode(cache, Sequences{{world.rank()}}), UsageError);
        }) == 0);
}
