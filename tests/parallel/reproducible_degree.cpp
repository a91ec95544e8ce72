// SPDX-License-Identifier: Apache-2.0
// covers: weft/tensor/fixed_terms.hpp weft/nn/fixed_product.hpp
// Under numerics.reproducible_degree a run has the same bits for every tp that divides the degree, beside dp, pp and stages of
// ZeRO: three steps of AdamW with dropout and clipping. Compared: losses, gradient norms and every updated weight. Without the
// option the bits differ.

#include "support/parity.hpp"

#include <bit>
#include <cstring>

#include <weft/engine/parameter_values.hpp>
#include <weft/kernels/convolution.hpp>
#include <weft/nn/fixed_product.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/tensor/fixed_terms.hpp>

using namespace weft_test;

namespace {

constexpr std::size_t length = 8, vocabulary = 24, micro_batches = 4;

template <class S>
using Model = models::BasicGpt<S>;

models::GptConfig config() {
  return {.vocabulary = vocabulary,
          .layers = 2,
          .width = 24,
          .heads = 4,
          .sequence = length,
          .dropout = 0.1,
          .standard_deviation = 0.2};
}

Batch share_of(std::uint64_t step, std::size_t rank, std::size_t ranks) {
  Batch batch;
  batch.sequences = micro_batches / ranks;
  batch.length = length;
  batch.micro_batches = batch.sequences;
  batch.first_sequence = batch.sequences * rank;
  batch.step = step;
  for (std::size_t i = 0; i < batch.sequences * length; ++i) {
    const std::size_t index = batch.first_sequence * length + i;
    batch.tokens.push_back(std::int32_t(key_of(step, index) % vocabulary));
    batch.targets.push_back(index % 5 == 0 ? -1 : std::int32_t(key_of(step, index, 7) % vocabulary));
  }
  return batch;
}

// Bits of numbers.
struct Training {
  std::vector<std::uint64_t> losses, norms;
  std::map<std::string, std::vector<unsigned char>> weights;
};

struct Layout {
  std::size_t tp = 1, dp = 1, pp = 1;
  int stage = 0;
};

template <class Composition, class C>
Training train(const C& config, const Layout& layout, std::size_t degree) {
  using T = typename Composition::model_type::scalar;
  Training run;
  std::mutex mutex;
  const int code = runtime::run(
      runtime::RunOptions{.ranks = int(layout.tp * layout.dp * layout.pp), .threads_per_rank = 1}, [&](World& world) {
        Mesh<dp, tp, pp> mesh(world, Degrees{.tp = layout.tp, .pp = layout.pp});
        Composition model(mesh, config,
                          {.shard = {.stage = layout.stage}, .numerics = {.reproducible = true, .reproducible_degree = degree}});
        optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 0.5});
        for (std::uint64_t step = 0; step < 3; ++step) {
          const double loss = model.train_step(share_of(step, mesh.comm(dp{}).rank(), layout.dp));
          const double norm = optimizer.step().gradient_norm;
          if (world.rank() != 0) continue;
          run.losses.push_back(std::bit_cast<std::uint64_t>(loss));
          run.norms.push_back(std::bit_cast<std::uint64_t>(norm));
        }
        const double evaluation = model.evaluate(share_of(99, mesh.comm(dp{}).rank(), layout.dp));
        if (world.rank() == 0) run.losses.push_back(std::bit_cast<std::uint64_t>(evaluation));
        std::lock_guard lock(mutex);
        model.for_each_state([&](ParameterState& state) {
          auto& bytes = run.weights[state.name()];
          bytes.resize(state.global().size() * sizeof(T));
          const detail::Buffer value = detail::value_of(model.device(), state);
          for (const auto& part : state.runs())
            std::memcpy(bytes.data() + part.global * sizeof(T), static_cast<const T*>(value.get()) + part.local,
                        part.length * sizeof(T));
        });
      });
  CHECK(code == 0);
  return run;
}

template <class M>
using Parallel = FullyShardedDataParallel<TensorParallel<PipelineParallel<M>>>;

template <class M, class C>
void same_bits(const C& config, std::initializer_list<Layout> layouts) {
  const Training expected = train<Parallel<M>>(config, {}, 4);
  CHECK(expected.losses.size() == 4);
  for (const Layout& layout : layouts) {
    INFO("tp " << layout.tp << ", dp " << layout.dp << ", pp " << layout.pp << ", stage " << layout.stage);
    const Training run = train<Parallel<M>>(config, layout, 4);
    CHECK(run.losses == expected.losses);
    CHECK(run.norms == expected.norms);
    for (const auto& weight : expected.weights) {
      INFO(weight.first);
      CHECK(bool(run.weights.at(weight.first) == weight.second));
    }
  }
}

}  // namespace

TEST_CASE("tp 1, 2 and 4 of a GPT in double") { same_bits<Model<double>>(config(), {{2}, {4}}); }

TEST_CASE("tp 1, 2 and 4 of a GPT in float, beside dp, pp and stages of ZeRO") {
  same_bits<Model<float>>(config(), {{2}, {4}, {2, 2}, {4, 2, 1, 3}, {2, 2, 2, 2}, {1, 4, 2, 1}, {4, 1, 2, 0}});
}

TEST_CASE("tp 1, 2 and 4 of a Llama whose query, key and value share a gradient") {
  const models::LlamaConfig llama{.vocabulary = vocabulary,
                                  .layers = 2,
                                  .width = 32,
                                  .heads = 8,
                                  .kv_heads = 4,
                                  .intermediate = 40,
                                  .sequence = length,
                                  .dropout = 0.1,
                                  .standard_deviation = 0.2};
  same_bits<models::BasicLlama<float>>(llama, {{2}, {4}, {2, 2, 2, 3}});
}

TEST_CASE("in bfloat16") { same_bits<Model<bfloat16>>(config(), {{2}, {4, 2, 1, 3}}); }

TEST_CASE("without the degree the bits differ") {
  const Training one = train<Parallel<Model<float>>>(config(), {}, 0), two = train<Parallel<Model<float>>>(config(), {2}, 0);
  CHECK(!(one.weights == two.weights));
  CHECK(!(one.losses == two.losses));
}

TEST_CASE("a sum over 1, 2 and 4 ranks is the tree over 4 terms") {
  constexpr std::size_t size = 7;  // does not divide evenly among 4 ranks
  const auto term = [](std::size_t i, float* out) {
    for (std::size_t k = 0; k < size; ++k) out[k] = 1 / float(3 + 7 * i + k);
  };
  std::vector<float> terms(4 * size), expected(size);
  for (std::size_t i = 0; i < 4; ++i) term(i, terms.data() + i * size);
  for (std::size_t k = 0; k < size; ++k) expected[k] = (terms[k] + terms[size + k]) + (terms[2 * size + k] + terms[3 * size + k]);
  for (const std::size_t ranks : {1, 2, 4})
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(ranks), .threads_per_rank = 1}, [&](World& world) {
            Mesh<tp> mesh(world, Degrees{.tp = ranks});
            world.device().fix_sum_terms(4 / ranks);
            const auto sum = detail::sum_of_fixed_terms<Tensor<float, DefaultDevice::execution_space, Partial<tp>>>(
                mesh.comm(tp{}), world.device(), {size},
                [&](std::size_t i, float* out) { term(std::size_t(world.rank()) * (4 / ranks) + i, out); });
            CHECK(sum.summed());
            CHECK(copy_to_host(raw(sum)) == expected);
          }) == 0);
}

TEST_CASE("a sum without fixed terms is refused") {
  DefaultDevice device;
  Tensor<float, DefaultDevice::execution_space, Partial<tp>> x(device, {2, 3});
  CHECK_THROWS_WITH_AS(detail::require_summed(x),
                       "weft: numerics.reproducible_degree: the sum over tp of a tensor [2, 3] has no fixed terms, so its bits "
                       "would depend on tp; the option covers Linear layers, dropout, embeddings and losses of dense language "
                       "models under TensorParallel: leave it out for this model",
                       UsageError);
  CHECK_THROWS_WITH_AS(detail::require_even_terms("vocabulary", 11, 2, 2),
                       "weft: numerics.reproducible_degree: vocabulary(22) % degree(4) != 0: all terms of a sum have one size; "
                       "use another degree or width",
                       UsageError);
}

TEST_CASE("convolutions are refused") {
  DefaultDevice device;
  device.fix_sum_terms(4);
  CHECK_THROWS_WITH_AS(kernels::detail::refuse_fixed_order(device),
                       doctest::Contains("convolution: numerics.reproducible_degree is for dense language models"), UsageError);
}

TEST_CASE("options that exclude each other") {
  const auto refused = [](const ModelOptions& options, const char* text) {
    CHECK_THROWS_WITH_AS(options.check(), text, UsageError);
  };
  refused(
      {.numerics = {.reproducible = true, .reproducible_degree = 6}},
      "weft: ModelOptions::numerics.reproducible_degree is 6: the terms of a sum are added in a binary tree, so it is a power "
      "of two, or 0 for off");
  refused({.numerics = {.reproducible_degree = 4}},
          "weft: ModelOptions::numerics.reproducible_degree is 4 without numerics.reproducible, which fixes the sums over data "
          "ranks: set both, or leave the degree out");
  refused({.tensor = {.piece_bytes = 1024}, .numerics = {.reproducible = true, .reproducible_degree = 4}},
          "weft: ModelOptions: numerics.reproducible_degree sums each product over tp at once, so it cannot go with "
          "tensor.piece_bytes; leave one of them out");
}

TEST_CASE("layouts and models that the option does not cover are refused") {
  using M = Model<float>;
  const auto options = [](std::size_t degree) {
    return ModelOptions{.numerics = {.reproducible = true, .reproducible_degree = degree}};
  };
  const auto on = [](int ranks, auto&& program) {
    CHECK(runtime::run(runtime::RunOptions{.ranks = ranks, .threads_per_rank = 1}, program) == 0);
  };
  on(2, [&](World& world) {
    Mesh<tp> mesh(world, Degrees{.tp = 2});
    CHECK_THROWS_WITH_AS(
        TensorParallel<M>(mesh, config(), options(1)),
        "weft: numerics.reproducible_degree(1) % tp(2) != 0: each rank has equally many terms of a sum; use a tp "
        "that divides the degree",
        LayoutError);
    CHECK_THROWS_WITH_AS(SequenceParallel<M>(mesh, config(), options(4)),
                         doctest::Contains("numerics.reproducible_degree does not cover SequenceParallel"), UsageError);
  });
  on(2, [&](World& world) {
    Mesh<cp, tp> mesh(world, Degrees{.cp = 2});
    CHECK_THROWS_WITH_AS(
        (ContextParallel<TensorParallel<M>>(mesh, config(), options(4))),
        "weft: numerics.reproducible_degree fixes the sums over tp, and not those over cp(2): use cp 1, or leave "
        "the option out",
        LayoutError);
  });
  on(1, [&](World& world) {
    Mesh<dp> mesh(world);
    CHECK_THROWS_WITH_AS(DataParallel<M>(mesh, config(), options(4)), doctest::Contains("the model's type has no TensorParallel"),
                         UsageError);
    Mesh<tp> tensor(world);
    auto wide = config();
    wide.vocabulary = 30;
    TensorParallel<M> model(tensor, wide, options(4));
    CHECK_THROWS_WITH_AS(model.train_step(share_of(0, 0, 1)), doctest::Contains("vocabulary(30) % degree(4) != 0"), UsageError);
    CHECK_THROWS_WITH_AS(detail::require_whole_terms(world.device(), 30, 1), doctest::Contains("vocabulary(30)"), UsageError);
    CHECK_THROWS_WITH_AS(TensorParallel<M>(tensor, wide, options(2)),
                         "weft: numerics.reproducible_degree(2): another model on this device has 4 terms a rank, and this one "
                         "2: give both models one degree",
                         UsageError);
  });
}
