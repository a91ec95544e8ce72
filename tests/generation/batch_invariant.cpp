// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/detail/attention_by_rows.hpp weft/tensor/softmax_statistics.hpp
// ModelOptions::numerics.batch_invariant: GPT gives a token the same log-probability, bit by bit, when it is generated in a batch
// of any size and when it is trained on, in every layout. Without the option bits differ.

#include <weft/kernels/attention.hpp>
#include <weft/kernels/convolution.hpp>
#include <weft/kernels/detail/attention_by_rows.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/tensor/softmax_statistics.hpp>

#include "generation/invariance.hpp"
#include "support/message.hpp"

using namespace weft_test;

namespace {
models::GptConfig config_of() {
  models::GptConfig config = gpt_config();
  config.layers = 2;
  config.sequence = trained_length;
  config.dropout = 0;
  config.standard_deviation = 0.3;  // probabilities far from uniform
  return config;
}
template <class S>
using Composition = FullyShardedDataParallel<TensorParallel<PipelineParallel<models::BasicGpt<S>>>>;
using Grid = Mesh<dp, tp, pp>;
}  // namespace

TEST_CASE_TEMPLATE("batches of 1, 3 and 8 sequences and training give the same bits on one rank, and others without the option",
                   S, float, bfloat16, double) {
  CHECK(apart_on_one_rank<models::BasicGpt<S>>(config_of(), true) == 0);
  const std::size_t apart = apart_on_one_rank<models::BasicGpt<S>>(config_of(), false);
  MESSAGE("without the option " << apart << " of 144 log-probabilities differ");
  // Activations in bfloat16 hide most differences of sums in float, here all: the products below show them.
  if (!std::is_same_v<S, bfloat16>) CHECK(apart > 0);
  CHECK(apart < 1000);
}

TEST_CASE_TEMPLATE("rows of a product have the same bits in a product of one row, and others without the option", T, float,
                   bfloat16, float16, double) {
  using A = weft::accumulate_t<T>;
  constexpr std::size_t rows = 21, outputs = 37, inputs = 83;
  std::vector<T> a(rows * inputs), b(outputs * inputs), bias(outputs);
  for (std::vector<T>* const all : {&a, &b, &bias})
    for (std::size_t i = 0; i < all->size(); ++i) (*all)[i] = T(float(std::sin(double(i * i % 1009 + all->size()))));
  for (const bool invariant : {false, true}) {
    DefaultDevice device;
    if (invariant) device.make_batch_invariant();
    std::size_t apart = 0;
    for (const bool transposed : {false, true}) {
      const auto product = [&](std::size_t first, std::size_t count) {
        std::vector<A> c(count * outputs);
        kernels::matmul<T, A>(device, kernels::Transpose::no, transposed ? kernels::Transpose::yes : kernels::Transpose::no,
                              count, outputs, inputs, a.data() + first * inputs, inputs, b.data(), transposed ? inputs : outputs,
                              c.data(), outputs, false, bias.data());
        return c;
      };
      const std::vector<A> whole = product(0, rows);
      for (const std::size_t count : {1, 2, 3, 4, 7, 8, 9, 16})
        for (std::size_t first = 0; first + count <= rows; ++first) {
          const std::vector<A> some = product(first, count);
          apart += std::memcmp(some.data(), whole.data() + first * outputs, some.size() * sizeof(A)) != 0;
        }
    }
    if (invariant) CHECK(apart == 0);
    else if (!std::is_same_v<T, bfloat16> || !kernels::detail::OneDnn::multiplies_bfloat16()) CHECK(apart > 0);
  }
}

TEST_CASE("layouts of dp, ZeRO, pp and tp train with the bits that they generate") {
  check_layouts<Composition<float>, Grid>(
      config_of(), {{2, {}}, {2, {}, 3}, {2, {.pp = 2}}, {2, {.tp = 2}}, {4, {.tp = 4}}, {4, {.tp = 2, .pp = 2}}});
}
TEST_CASE("so do layouts of models in bfloat16 and in double") {
  const std::vector<InvariantLayout> layouts = {{2, {}, 1}, {4, {.tp = 2, .pp = 2}}, {4, {.tp = 4}}};
  check_layouts<Composition<bfloat16>, Grid>(config_of(), layouts);
  check_layouts<Composition<double>, Grid>(config_of(), layouts);
}

TEST_CASE("a window, and documents of a packed sequence") {
  models::GptConfig config = config_of();
  config.mask.window = 5;
  CHECK(apart_on_one_rank<models::BasicGpt<float>>(config, true) == 0);

  // Each sequence is a document behind another one, so its keys begin at another place of the row.
  DefaultDevice device;
  SingleDevice<models::BasicGpt<float>> model(device, config_of(), {.numerics = {.batch_invariant = true}});
  const Generated made = generated_in_batches(model, 8);
  for (std::size_t i = 0; i < made.size(); ++i) {
    std::vector<std::int32_t> tokens = scored_prompts[i];
    tokens.insert(tokens.end(), made[i].begin(), made[i].end());
    TokenBatch batch{.sequences = 1, .length = trained_length};
    const std::size_t before = std::min<std::size_t>(3, trained_length - tokens.size());
    batch.tokens.assign(before, 4);
    batch.documents.assign(before, 0);
    batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
    batch.documents.resize(batch.tokens.size(), 1);
    batch.tokens.resize(trained_length);
    batch.documents.resize(trained_length, -1);
    batch.targets.assign(trained_length, -1);
    batch.targets[before + tokens.size() - 2] = tokens.back();
    CHECK(float(-model.train_step(batch)) == float(made.log_probabilities[i].back()));
    model.discard_gradients();
  }
}

TEST_CASE("what cannot be batch-invariant is refused") {
  DefaultDevice device;
  device.make_batch_invariant();
  const std::vector<float> numbers(64, 1);
  std::vector<float> out(64), lse(8);
  const std::vector<std::uint8_t> visible(16, 1);
  const kernels::AttentionOperands<const float> in{numbers.data(), numbers.data(), numbers.data(), 8, 8, 8};
  CHECK(message<UsageError>([&] {
          kernels::attention_forward<float>(device, {.sequences = 1, .length = 4, .head_width = 8}, in, {out.data(), 8},
                                            lse.data(), {}, {.visible = visible.data(), .query_step = 4});
        }) ==
        "weft: attention: numerics.batch_invariant takes causal masks, windows and documents, and this layer's mask is an array "
        "(visible or added): leave batch_invariant out");
  const kernels::ConvolutionShape shape{};
  CHECK(message<UsageError>([&] {
          kernels::convolution_forward<float>(device, shape, numbers.data(), numbers.data(), nullptr, out.data());
        }).starts_with("weft: convolution: numerics.batch_invariant is for products, attention and norms"));
}

TEST_CASE_TEMPLATE("a rehearsal counts the memory of products", T, float, bfloat16, float16, double) {
  const auto peak = [](bool rehearsed, std::size_t rows) {
    DefaultDevice device;
    Rehearsal notes;
    if (rehearsed) device.rehearse(notes);
    device.make_batch_invariant();
    constexpr std::size_t n = 96, k = 64;
    const std::vector<T> a(rows * k), b(n * k);
    std::vector<T> c(rows * n);
    kernels::matmul(device, kernels::Transpose::no, kernels::Transpose::yes, rows, n, k, a.data(), k, b.data(), k, c.data(), n);
    return device.arena().use().peak;
  };
  for (const std::size_t rows : {std::size_t(3), std::size_t(200)}) {
    CHECK(peak(true, rows) > 0);
    CHECK(peak(true, rows) == peak(false, rows));
  }
}
