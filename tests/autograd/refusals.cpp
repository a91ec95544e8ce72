// SPDX-License-Identifier: Apache-2.0
// covers: weft/autograd/model.hpp
// Models that do not fit their layout are refused with one text, the same on every rank and before any communication.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <weft/autograd/model.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

template <class Model>
using Composition = DataParallel<TensorParallel<PipelineParallel<Model, schedule::OneForwardOneBackward>>>;

/// The error on every rank when the model is made; "different" if the ranks disagree.
template <class Model>
std::string refusal(int ranks, const Degrees& degrees, const typename Model::Config& config) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks), "nothing");
  CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world, degrees);
          try {
            Composition<Model> model(mesh, config);
          } catch (const LayoutError& error) {
            texts[std::size_t(world.rank())] = error.what();
          }
        }) == 0);
  for (const std::string& text : texts)
    if (text != texts[0]) return "different: " + text + " / " + texts[0];
  return texts[0];
}

}  // namespace

TEST_CASE("layouts that a model does not fit") {
  CHECK(refusal<models::Gpt>(2, {}, {.width = 30, .heads = 4}) == "weft: width(30) % heads(4) != 0");
  CHECK(refusal<models::Gpt>(1, {}, {.width = 0, .heads = 4}) == "weft: vocabulary(256) and width(0) must be at least 1");
  CHECK(refusal<models::Llama>(1, {}, {.vocabulary = 0, .layers = 1, .width = 32, .heads = 4}) ==
        "weft: vocabulary(0) and width(32) must be at least 1");
  CHECK(refusal<models::Gpt>(1, {}, {.width = 32, .heads = 0}) == "weft: width(32) % heads(0) != 0");
  CHECK(refusal<models::Gpt>(4, {.pp = 4}, {.layers = 3, .width = 32, .heads = 4}) ==
        "weft: layers(3) < pp(4) * chunks(1): every stage holds at least one layer");
  CHECK(refusal<models::Gpt>(4, {.tp = 4}, {.layers = 1, .width = 36, .heads = 6}) ==
        "weft: heads(6) % tp(4) != 0: a rank holds whole heads");
  CHECK(refusal<models::Gpt>(4, {.tp = 4}, {.layers = 1, .width = 48, .heads = 12, .kv_heads = 3}) ==
        "weft: key-value heads(3) neither divide into nor repeat over tp(4)");
  CHECK(refusal<models::Llama>(4, {.tp = 4}, {.layers = 1, .width = 32, .heads = 8, .intermediate = 50}) ==
        "weft: intermediate(50) % tp(4) != 0");
  CHECK(refusal<models::Llama>(1, {}, {.layers = 1, .width = 36, .heads = 6, .kv_heads = 4}) ==
        "weft: heads(6) % key-value heads(4) != 0");
  CHECK(refusal<models::Llama>(4, {.tp = 4}, {.layers = 1, .width = 36, .heads = 6, .intermediate = 48}) ==
        "weft: heads(6) % tp(4) != 0: a rank holds whole heads");
}

TEST_CASE("parameters that cannot be cut") {
  ParameterInfo info{.name = "P", .global = {36, 4}, .local = {36, 4}};
  CHECK_THROWS_WITH_AS(detail::shard_parameter(info, 0, {{{36, 6}}, false}, "tp", 4, 0),
                       "weft: parameter P [36, 4]: 6 heads cannot be cut by tp(4)", LayoutError);
  CHECK_THROWS_WITH_AS(detail::shard_parameter(info, 0, {}, "tp", 8, 0),
                       "weft: parameter P [36, 4]: 36 elements cannot be cut by tp(8)", LayoutError);
  CHECK_THROWS_WITH_AS(detail::shard_parameter(info, 2, {}, "tp", 2, 0),
                       "weft: parameter P [36, 4] has no dim 2, which its rule Shard<tp, 2> cuts", LayoutError);
  CHECK_THROWS_WITH_AS(detail::shard_parameter(info, 0, {{{30, 0}}, false}, "tp", 2, 0),
                       "weft: parameter P [36, 4]: its segments along dim 0 add up to 30", ShapeError);
}

TEST_CASE("layers that cannot be") {
  DefaultDevice device;
  detail::Environment environment;
  environment.length = 12;
  const Context<Compute<DefaultDevice::execution_space, float>> context(device, environment);
  CHECK_THROWS_WITH_AS(Dropout(context / "drop", 1.0), "weft: dropout 1.000000 at drop is not in [0, 1)", UsageError);
  CHECK_THROWS_WITH_AS(CausalAttention(context, AttentionHeads{6, 4, 8}), "weft: heads(6) % key-value heads(4) != 0",
                       LayoutError);
  const LearnedPositions positions(context / "positions", 8, 4);
  CHECK_THROWS_WITH_AS(positions.forward(context, Tensor<float, DefaultDevice::execution_space>(device, {12, 4})),
                       "weft: a sequence of 12 tokens, but positions.weight holds 8 positions", ShapeError);
}
