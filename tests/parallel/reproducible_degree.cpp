// SPDX-License-Identifier: Apache-2.0
// covers: weft/tensor/fixed_terms.hpp weft/nn/fixed_product.hpp
// Under numerics.reproducible_degree a run has the same bits for every tp that divides the degree, beside dp, pp and stages of
// ZeRO: three steps of AdamW with dropout and clipping. Compared: losses, gradient norms and every updated weight. Without the
// option the bits differ.

#include "support/reproducible_degree.hpp"

#include <weft/kernels/convolution.hpp>
#include <weft/nn/fixed_product.hpp>
#include <weft/tensor/fixed_terms.hpp>

using namespace weft_test;

namespace {

template <class S>
using Model = models::BasicGpt<S>;
template <class M>
using Parallel = FullyShardedDataParallel<TensorParallel<PipelineParallel<M>>>;
using Grid = Mesh<dp, tp, pp>;

}  // namespace

TEST_CASE("tp 1, 2 and 4 of a GPT in double") {
  check_same_bits<Parallel<Model<double>>, Grid>(degree_gpt(), {{.tp = 2}, {.tp = 4}});
}

TEST_CASE("tp 1, 2 and 4 of a GPT in float, beside dp, pp and stages of ZeRO") {
  check_same_bits<Parallel<Model<float>>, Grid>(degree_gpt(), {{.tp = 2},
                                                               {.tp = 4},
                                                               {.tp = 2, .dp = 2},
                                                               {.tp = 4, .dp = 2, .stage = 3},
                                                               {.tp = 2, .dp = 2, .pp = 2, .stage = 2},
                                                               {.dp = 4, .pp = 2, .stage = 1},
                                                               {.tp = 4, .pp = 2}});
}

TEST_CASE("tp 1, 2 and 4 of a Llama whose query, key and value share a gradient") {
  check_same_bits<Parallel<models::BasicLlama<float>>, Grid>(degree_llama(),
                                                             {{.tp = 2}, {.tp = 4}, {.tp = 2, .dp = 2, .pp = 2, .stage = 3}});
}

TEST_CASE("in bfloat16") {
  check_same_bits<Parallel<Model<bfloat16>>, Grid>(degree_gpt(), {{.tp = 2}, {.tp = 4, .dp = 2, .stage = 3}});
}

TEST_CASE("without the degree the bits differ") {
  Bits one;
  std::string differ;
  train_bits<Parallel<Model<float>>, Grid>(degree_gpt(), {}, 0, one);
  train_bits<Parallel<Model<float>>, Grid>(degree_gpt(), {.tp = 2}, 0, one, &differ);
  CHECK(differ.find("loss ") != std::string::npos);
  CHECK(differ.find("transformer.ln_f.weight ") != std::string::npos);
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

TEST_CASE("a product of a sum that every rank holds is no term of another sum") {
  for (const int ranks : {1, 2})
    CHECK(runtime::run(runtime::RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World& world) {
            using Exec = DefaultDevice::execution_space;
            auto& device = world.device();
            device.fix_sum_terms(std::size_t(2 / ranks));
            const auto context =
                Context<Compute<Exec, double>>(device, detail::Environment{}).with<Invariant<tp>>(tp{}, world.communicator());
            Tensor<double, Exec, Partial<tp>> x(device, {1, 2});
            const Tensor<double, Exec, Replicated<tp>> w(device, {1, 2});
            x.data()[0] = 3, x.data()[1] = 5, w.data()[0] = 7, w.data()[1] = 11;
            CHECK(!detail::summed_product<0>(context, x, w, Nothing{}).summed());
            x.mark_summed(true);
            const auto y = scale(detail::summed_product<0>(context, x, w, Nothing{}), 2);
            CHECK(y.summed());
            CHECK(to<Invariant<tp>>(context, y).data()[0] == 2 * (3 * 7 + 5 * 11));
          }) == 0);
}

TEST_CASE("a sum without fixed terms is refused") {
  DefaultDevice device;
  Tensor<float, DefaultDevice::execution_space, Partial<tp>> x(device, {2, 3});
  CHECK_THROWS_WITH_AS(detail::require_summed(x),
                       "weft: numerics.reproducible_degree: the sum over tp of a tensor [2, 3] has no fixed terms, so its bits "
                       "would depend on tp; the option covers the layers and losses of weft's language models under "
                       "TensorParallel, SequenceParallel and ContextParallel: leave it out for this model",
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
        TensorParallel<M>(mesh, degree_gpt(), options(1)),
        "weft: numerics.reproducible_degree(1) % tp(2) != 0: each rank has equally many terms of a sum; use a tp "
        "that divides the degree",
        LayoutError);
  });
  on(1, [&](World& world) {
    Mesh<dp> mesh(world);
    CHECK_THROWS_WITH_AS(DataParallel<M>(mesh, degree_gpt(), options(4)),
                         doctest::Contains("the model's type has no TensorParallel"), UsageError);
    Mesh<tp> tensor(world);
    auto wide = degree_gpt();
    wide.vocabulary = 30;
    TensorParallel<M> model(tensor, wide, options(4));
    CHECK_THROWS_WITH_AS(model.train_step(degree_batch(0, 0, 1)), doctest::Contains("vocabulary(30) % degree(4) != 0"),
                         UsageError);
    CHECK_THROWS_WITH_AS(detail::require_whole_terms(world.device(), 30, 1), doctest::Contains("vocabulary(30)"), UsageError);
    CHECK_THROWS_WITH_AS(TensorParallel<M>(tensor, wide, options(2)),
                         "weft: numerics.reproducible_degree(2): another model on this device has 4 terms a rank, and this one "
                         "2: give both models one degree",
                         UsageError);
  });
}
