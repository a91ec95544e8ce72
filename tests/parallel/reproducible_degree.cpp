// SPDX-License-Identifier: Apache-2.0
// covers: weft/tensor/fixed_terms.hpp weft/nn/fixed_product.hpp
// Under numerics.reproducible_degree a run has the same bits for every tp that divides the degree, beside dp, pp and stages of
// ZeRO: three steps of AdamW with dropout and clipping. Compared: losses, gradient norms and every updated weight. Without the
// option the bits differ.

#include "support/parity.hpp"

#include <bit>
#include <cstring>

#include <weft/engine/parameter_values.hpp>
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
  friend bool operator==(const Training&, const Training&) = default;
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
    for (const auto& [name, bytes] : expected.weights) {
      INFO(name);
      CHECK(bool(run.weights.at(name) == bytes));
    }
  }
}

}  // namespace

TEST_CASE("tp 1, 2 and 4 of a GPT in double") { same_bits<Model<double>>(config(), {{2}, {4}}); }

TEST_CASE("tp 1, 2 and 4 of a GPT in float, beside dp, pp and stages of ZeRO") {
  same_bits<Model<float>>(config(), {{2}, {4}, {2, 2}, {4, 2, 1, 3}, {2, 2, 2, 2}, {1, 4, 2, 1}, {4, 1, 2, 0}});
}

TEST_CASE("without the degree the bits differ") {
  const Training one = train<Parallel<Model<float>>>(config(), {}, 0), two = train<Parallel<Model<float>>>(config(), {2}, 0);
  CHECK(!(one.weights == two.weights));
  CHECK(!(one.losses == two.losses));
}
