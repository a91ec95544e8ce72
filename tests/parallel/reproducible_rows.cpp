// SPDX-License-Identifier: Apache-2.0
// covers: weft/autograd/row_terms.hpp
// Under numerics.reproducible_degree a run has the same bits for every degree of cp (Ulysses) and of tp with sequence
// parallelism, which cut the rows of a gradient's sum, beside the other axes.

#include "support/reproducible_degree.hpp"

#include <weft/autograd/row_terms.hpp>

using namespace weft_test;

namespace {

template <class M>
using Rows = FullyShardedDataParallel<SequenceParallel<PipelineParallel<M>>>;
template <class M>
using Chunks = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<M>>>>;
using RowMesh = Mesh<dp, tp, pp>;
using ChunkMesh = Mesh<dp, cp, tp, pp>;

}  // namespace

TEST_CASE("sequence parallelism: a GPT in float, beside dp, pp and stages of ZeRO") {
  check_same_bits<Rows<models::BasicGpt<float>>, RowMesh>(
      degree_gpt(),
      {{.tp = 2}, {.tp = 4}, {.tp = 2, .threads = 2}, {.tp = 4, .dp = 2, .stage = 3}, {.tp = 2, .dp = 2, .pp = 2, .stage = 2}});
}

TEST_CASE("cp: a GPT in float, beside tp, dp, pp and stages of ZeRO") {
  check_same_bits<Chunks<models::BasicGpt<float>>, ChunkMesh>(degree_gpt(), {{.cp = 2},
                                                                             {.cp = 4},
                                                                             {.cp = 2, .tp = 2},
                                                                             {.cp = 2, .threads = 2},
                                                                             {.cp = 4, .dp = 2, .stage = 3},
                                                                             {.cp = 2, .tp = 2, .pp = 2}});
}

TEST_CASE("sequence parallelism: a Llama in double, a GPT in bfloat16") {
  check_same_bits<Rows<models::BasicLlama<double>>, RowMesh>(degree_llama(), {{.tp = 2}, {.tp = 4}});
  check_same_bits<Rows<models::BasicGpt<bfloat16>>, RowMesh>(degree_gpt(), {{.tp = 2}, {.tp = 4, .dp = 2, .stage = 3}});
}

TEST_CASE("cp: a Llama in double, a GPT in bfloat16") {
  check_same_bits<Chunks<models::BasicLlama<double>>, ChunkMesh>(degree_llama(), {{.cp = 2}, {.cp = 4}, {.cp = 2, .tp = 2}});
  check_same_bits<Chunks<models::BasicGpt<bfloat16>>, ChunkMesh>(degree_gpt(), {{.cp = 2}, {.cp = 4, .dp = 2, .stage = 3}});
}

TEST_CASE("without the degree the bits differ") {
  Bits rows, chunks;
  std::string differ;
  train_bits<Rows<models::BasicGpt<float>>, RowMesh>(degree_gpt(), {}, 0, rows);
  train_bits<Rows<models::BasicGpt<float>>, RowMesh>(degree_gpt(), {.tp = 2}, 0, rows, &differ);
  CHECK(differ.find("gradient of transformer.ln_f.weight ") != std::string::npos);
  differ.clear();
  train_bits<Chunks<models::BasicGpt<float>>, ChunkMesh>(degree_gpt(), {}, 0, chunks);
  train_bits<Chunks<models::BasicGpt<float>>, ChunkMesh>(degree_gpt(), {.cp = 2}, 0, chunks, &differ);
  CHECK(differ.find("loss ") != std::string::npos);
  CHECK(differ.find("gradient of transformer.wte.weight ") != std::string::npos);
}

TEST_CASE("the terms over cp are two chunks of each sequence, on any rank") {
  constexpr std::size_t degree = 4, length = 16, sequences = 2;
  const auto terms_of = [](std::size_t ranks) {  // of all ranks, in order; each term as tokens of the batch
    std::vector<std::vector<std::size_t>> all;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const detail::Zigzag cut{length, ranks, rank};
      const detail::RowTerms terms{
          .count = degree / ranks, .rows = sequences * length / ranks, .sequence = length / ranks, .axis = axis_bit<cp>};
      for (std::size_t term = 0; term < terms.count; ++term) {
        auto& tokens = all.emplace_back();
        terms.for_each_run(term, [&](std::size_t first, std::size_t count) {
          for (std::size_t i = first; i < first + count; ++i) tokens.push_back(cut.row(i));
        });
      }
    }
    return all;
  };
  const auto expected = terms_of(1);
  CHECK(expected[1] == std::vector<std::size_t>{2, 3, 12, 13, 18, 19, 28, 29});
  CHECK(terms_of(2) == expected);
  CHECK(terms_of(4) == expected);
}

TEST_CASE("a second addition to a gradient is no fixed term") {
  detail::GradientState state;
  const auto add = [&] {
    state.add(0, axis_bit<cp>, 0, 0);
    state.take_fresh();
  };
  add();
  CHECK(state.loose(cp{}));
  state.mark_fixed_terms(axis_bit<cp>);
  CHECK(!state.loose(cp{}));
  state.add(axis_bit<cp>, 0, 0, 0);  // the whole gradient of another use
  CHECK(state.loose(cp{}));
  state.begin_step();
  add();
  state.mark_fixed_terms(axis_bit<cp>);
  CHECK(!state.loose(cp{}));
}

TEST_CASE("a sum over cp of a user's own has no fixed terms and is refused, also on one rank") {
  for (const int ranks : {1, 2})
    CHECK(runtime::run(runtime::RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World& world) {
            using Exec = DefaultDevice::execution_space;
            auto& device = world.device();
            const auto context =
                Context<Compute<Exec, float>>(device, detail::Environment{}).with<Invariant<cp>>(cp{}, world.communicator());
            using Sum = Tensor<float, Exec, Partial<cp>>;
            const Sum sum(device, {3});
            kernels::fill(device, 3, sum.data(), 1.0f);
            CHECK(to<Invariant<cp>>(context, sum).data()[2] == float(ranks));
            device.fix_chunk_terms(2);
            const auto refused =
                doctest::Contains("numerics.reproducible_degree: the sum over cp of a tensor [3] has no fixed terms");
            CHECK_THROWS_WITH_AS(to<Invariant<cp>>(context, sum), refused, UsageError);
            CHECK_THROWS_WITH_AS(to<Invariant<cp>>(context, Sum(device, {3})), refused, UsageError);
            device.fix_chunk_terms(0);
          }) == 0);
}

TEST_CASE("layouts and options that the option does not cover are refused") {
  using M = models::BasicGpt<float>;
  const auto options = [](ContextMethod method, std::size_t chunks = 1) {
    ModelOptions all{.numerics = {.reproducible = true, .reproducible_degree = 4}, .loss = {.chunks = chunks}};
    all.context = method;
    return all;
  };
  const auto on = [](const Degrees& degrees, auto&& program) {
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(degrees.cp * degrees.tp), .threads_per_rank = 1}, [&](World& world) {
            const Mesh<cp, tp> mesh(world, degrees);
            program(mesh);
          }) == 0);
  };
  on({.cp = 2}, [&](const auto& mesh) {
    CHECK_THROWS_WITH_AS((ContextParallel<TensorParallel<M>>(mesh, degree_gpt(), options(ContextMethod::ring))),
                         "weft: numerics.reproducible_degree: a ring over cp(2) adds the blocks of keys in an order that depends "
                         "on cp: use ContextMethod::ulysses, or cp 1",
                         LayoutError);
    CHECK_THROWS_WITH_AS((ContextParallel<TensorParallel<M>>(mesh, degree_gpt(), options(ContextMethod::ulysses, 2))),
                         doctest::Contains("a sum over loss.chunks(2) parts of the tokens"), UsageError);
    auto few = degree_gpt();
    few.kv_heads = 1;
    CHECK_THROWS_WITH_AS((ContextParallel<TensorParallel<M>>(mesh, few, options(ContextMethod::ulysses))),
                         doctest::Contains("kv heads of a tp rank(1) % cp(2) != 0"), LayoutError);
    ContextParallel<TensorParallel<M>> model(mesh, degree_gpt(), options(ContextMethod::ulysses));
    auto batch = degree_batch(0, 0, 1);
    batch.sequences *= 4, batch.length /= 4;  // 4 tokens: two chunks for each of 2 ranks, and not for 4
    CHECK_THROWS_WITH_AS(model.train_step(batch), doctest::Contains("sequence(4) % (2 * degree(4)) != 0"), ShapeError);
  });
  on({.tp = 2}, [&](const auto& mesh) {
    ContextParallel<SequenceParallel<M>> model(mesh, degree_gpt(), options(ContextMethod::ring));
    CHECK_THROWS_WITH_AS(model.train_step(degree_batch(0, 0, 1)),
                         doctest::Contains("SequenceParallel or a mixture of experts inside ContextParallel"), UsageError);
  });
}
