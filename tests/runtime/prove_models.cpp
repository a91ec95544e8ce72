// SPDX-License-Identifier: Apache-2.0
// Proofs of weft's models over the axes whose ranks hold parts of sequences, or experts.
#define WEFT_PROVE_IN_DOUBLE
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <weft/mesh/zigzag.hpp>
#include <weft/operations/samples.hpp>
#include <weft/testing/prove.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

// 16 sequences of 8 tokens, the same for any number of data ranks that divides them.
TokenBatch tokens_of(std::size_t rank, std::size_t ranks, std::uint64_t step) {
  const std::size_t mine = 16 / ranks;
  TokenBatch batch{.sequences = mine, .length = 8, .micro_batches = mine % 2 == 0 ? 2u : 1u, .first_sequence = rank * mine};
  for (std::size_t i = 0; i < mine * 8; ++i) {
    batch.tokens.push_back(std::int32_t(Philox::uniform(key_of(3, step), batch.first_sequence * 8 + i) * 16));
    batch.targets.push_back(std::int32_t(Philox::uniform(key_of(4, step), batch.first_sequence * 8 + i) * 16));
  }
  return batch;
}

template <class Model, class M>
void train(M& mesh, const typename Model::Config& config) {
  Model model(mesh, config, {.seed = 2});
  optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 1.0});
  for (std::uint64_t step = 0; step < 2; ++step) {
    model.train_step(tokens_of(std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), step));
    optimizer.step();
  }
}

inline constexpr data::Field<"series", float, data::SequenceDim<1>> series;

// A factor of each position, which forgets that cp cuts sequences if `wrong`.
bool wrong = false;  // child processes inherit it
struct Positions : Primitive<Positions> {
  static auto scaled(const auto& context, const auto& x) {
    std::remove_cvref_t<decltype(x)> y(x.device(), x.shape());
    const std::size_t ranks = context.size(cp{}), local = 8 / ranks;
    const weft::detail::Zigzag cut{8, ranks, context.rank(cp{})};
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t position = i / x.columns() % local;
      y.data()[i] = x.data()[i] * (1 + 0.1 * double(wrong ? position : cut.position(position)));
    }
    return y;
  }
  auto forward(const auto& context, const auto& x) const { return Result{scaled(context, x), Nothing{}}; }
  auto backward(const auto& context, Nothing, const auto& g) const { return scaled(context, g); }
};

struct Sequences : Module<Sequences> {
  using scalar = float;
  using Batch = FieldBatch<series>;
  struct Config {};
  Parameter<> up, down;
  Positions positions;
  Sequences(const auto& context, const Config&)
      : up(context, "mlp.up", {6, 4}, normal(0.5)), down(context, "mlp.down", {3, 6}, normal(0.5)) {}
  auto loss(const auto& batch) const {
    const auto y = matmul(positions(silu(matmul(merge_samples(batch[series]), up))), down);
    return sum_losses(sum<1>(to<Invariant<cp>>(sum<1>(split_samples(square(y))))));
  }
};

runtime::ProofReport proof_of_sequences() {
  return runtime::prove({.ranks = 4}, [](World& world) {
    Mesh<dp, cp> mesh(world);
    DataParallel<ContextParallel<Sequences>> model(mesh, {}, {.seed = 2});
    optim::AdamW optimizer(model, {.learning_rate = 1e-2});
    for (std::uint64_t step = 0; step < 2; ++step) {
      const std::size_t mine = 8 / mesh.size(dp{}), first = mesh.rank(dp{}) * mine;
      Sequences::Batch batch{.samples = mine, .micro_batches = mine % 2 == 0 ? 2u : 1u, .first_sample = first};
      auto x = batch[series].resize(mine, {8, 4});
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(Philox::uniform(key_of(5, step), first * 32 + i) - 0.5);
      model.train_step(batch);
      optimizer.step();
    }
    return 0;
  });
}

}  // namespace

TEST_CASE("positions that are not those of cp are found at the result that is computed from them") {
  const runtime::ProofReport right = proof_of_sequences();
  INFO(right.text());
  CHECK(right.proven());
  wrong = true;
  const runtime::ProofReport report = proof_of_sequences();
  wrong = false;
  INFO(report.text());
  std::size_t found = 0;
  for (const runtime::ProvenLayout& one : report.layouts)
    if (one.layout.degree("cp") > 1 && one.verdict == runtime::ProvenLayout::Verdict::differs)
      found += one.text.find("step 1, forward, mlp, Positions #1 after mlp.up, sample ") == 0;
  CHECK(found == 3);  // cp 2, cp 2 dp 2, cp 4
}

TEST_CASE("a GPT with dropout over cp and tp") {
  const runtime::ProofReport report = testing::prove(
      [](World& world) {
        Mesh<dp, cp, tp> mesh(world);
        train<FullyShardedDataParallel<ContextParallel<TensorParallel<models::Gpt>>>>(
            mesh, {.vocabulary = 16, .layers = 2, .width = 16, .heads = 4, .sequence = 8, .dropout = 0.1});
      },
      {.ranks = 4});
  CHECK(report.count(runtime::ProvenLayout::Verdict::agrees) == 25);
}

TEST_CASE("a mixture of experts over ep, edp and pp") {
  const runtime::ProofReport report = testing::prove(
      [](World& world) {
        Mesh<dp, pp, ep, edp> mesh(world);
        train<FullyShardedDataParallel<ExpertParallel<PipelineParallel<models::Mixtral>>>>(mesh, {.vocabulary = 16,
                                                                                                  .layers = 2,
                                                                                                  .width = 16,
                                                                                                  .heads = 4,
                                                                                                  .kv_heads = 2,
                                                                                                  .intermediate = 12,
                                                                                                  .sequence = 8,
                                                                                                  .experts = 4,
                                                                                                  .top_k = 2});
      },
      {.ranks = 4});
  CHECK(report.count(runtime::ProvenLayout::Verdict::agrees) == 51);
}
