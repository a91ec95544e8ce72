// SPDX-License-Identifier: Apache-2.0
// Bitwise independence of the layout: initial weights of every element type, assembled from all ranks, and dropout masks, also
// when they are drawn again. Bitwise equality between runs: training with one seed.

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <weft/engine/parameter_values.hpp>
#include <weft/weft.hpp>

#include "support/degrees.hpp"
#include "support/layers.hpp"
#include "support/made_parameters.hpp"

using namespace weft;
using namespace weft_test;

namespace {

template <class Model>
using Wrapped = DataParallel<TensorParallel<PipelineParallel<Model, schedule::OneForwardOneBackward>>>;
template <class Model>
using Sharded = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model, schedule::OneForwardOneBackward>>, zero::Stage3>;

using Bytes = std::vector<unsigned char>;

Bytes bytes_of(const detail::Buffer& buffer, std::size_t size) {
  Bytes bytes(size);
  if (size != 0) std::memcpy(bytes.data(), buffer.get(), size);
  return bytes;
}

// --- initial weights -------------------------------------------------------------------------------------------------------

/// A whole parameter, and how many ranks hold, or answer for, each element.
struct Whole {
  Bytes bytes;
  std::vector<int> held, counted;
};
using Weights = std::map<std::string, Whole>;

/// Adds one rank's elements. Returns an error text, or "".
std::string put(Weights& weights, DefaultDevice& device, ParameterState& state) {
  const std::size_t size = size_of(state.type());
  auto& whole = weights[state.name()];
  if (whole.bytes.empty())
    whole = {Bytes(state.global().size() * size), std::vector<int>(state.global().size()),
             std::vector<int>(state.global().size())};
  if (whole.held.size() != state.global().size()) return state.name() + " has another shape on another rank";
  const Bytes mine = bytes_of(detail::value_of(device, state), state.kept() * size);
  std::vector<char> padding(state.kept(), 1);
  for (const auto& run : state.runs())
    for (std::size_t i = 0; i < run.length; ++i) {
      unsigned char* there = whole.bytes.data() + (run.global + i) * size;
      const unsigned char* here = mine.data() + (run.local + i) * size;
      if (whole.held[run.global + i]++ == 0) std::memcpy(there, here, size);
      else if (std::memcmp(there, here, size) != 0) return state.name() + " differs between two ranks that hold the same element";
      whole.counted[run.global + i] += state.counted() && run.owned;
      padding[run.local + i] = 0;
    }
  for (std::size_t i = 0; i < state.kept(); ++i)
    for (std::size_t byte = 0; padding[i] && byte < size; ++byte)
      if (mine[i * size + byte] != 0) return state.name() + ": padding is not zero";
  return "";
}

template <class Model>
Weights one_rank(const typename Model::Config& config, std::uint64_t seed = 1) {
  Weights weights;
  DefaultDevice device;
  SingleDevice<Model> model(device, config, {.seed = seed});
  model.for_each_state([&](ParameterState& state) { CHECK(put(weights, device, state) == ""); });
  return weights;
}

template <class Composition>
void check_weights(const typename Composition::Config& config) {
  const Weights expected = one_rank<typename Composition::model_type>(config);
  for (const std::size_t world : {2, 4, 8})
    for_each_degrees(world, [&](const Degrees& degrees, std::size_t data) {
      INFO("dp(" << data << ") * tp(" << degrees.tp << ") * pp(" << degrees.pp << ")");
      Weights together;
      std::string wrong;
      std::mutex mutex;
      const int code = run(RunOptions{.ranks = int(world)}, [&](World& rank) {
        Mesh<dp, tp, pp> mesh(rank, degrees);
        Composition model(mesh, config);
        std::lock_guard lock(mutex);
        model.for_each_state([&](ParameterState& state) {
          if (const std::string text = put(together, model.device(), state); !text.empty()) wrong = text;
        });
      });
      CHECK(code == 0);
      CHECK(wrong == "");
      REQUIRE(together.size() == expected.size());
      for (const auto& [key, whole] : expected) {
        const std::string& name = key;  // clang before 16 does not capture bindings
        INFO(name);
        REQUIRE(together.contains(name));
        CHECK(together[name].bytes == whole.bytes);
        CHECK(together[name].counted == std::vector<int>(whole.held.size(), 1));
      }
    });
}

// No degree divides 19; 8 query heads over 2 key-value heads, which several of 4 or 8 ranks share.
template <class S>
void check_models() {
  const models::GptConfig gpt{.vocabulary = 19, .layers = 8, .width = 32, .heads = 8, .kv_heads = 2, .sequence = 8};
  const models::LlamaConfig llama{
      .vocabulary = 19, .layers = 8, .width = 32, .heads = 8, .kv_heads = 2, .intermediate = 48, .sequence = 8};
  check_weights<Wrapped<models::BasicGpt<S>>>(gpt);
  check_weights<Wrapped<models::BasicLlama<S>>>(llama);
  check_weights<Sharded<models::BasicGpt<S>>>(gpt);
}

}  // namespace

TEST_CASE("initial weights are the same in every layout: float") { check_models<float>(); }
TEST_CASE("initial weights are the same in every layout: double") { check_models<double>(); }
TEST_CASE("initial weights are the same in every layout: bfloat16") { check_models<bfloat16>(); }

TEST_CASE("a seed gives its weights again, another seed gives others") {
  const models::GptConfig config{.vocabulary = 19, .layers = 2, .width = 16, .heads = 4, .sequence = 8};
  const Weights first = one_rank<models::Gpt>(config, 3), again = one_rank<models::Gpt>(config, 3),
                other = one_rank<models::Gpt>(config, 4);
  for (const auto& [key, whole] : first) {
    const std::string& name = key;  // clang before 16 does not capture bindings
    INFO(name);
    CHECK(again.at(name).bytes == whole.bytes);
    const bool random = name.find("ln_") == std::string::npos && name.find("bias") == std::string::npos;
    CHECK((other.at(name).bytes != whole.bytes) == random);
  }
  CHECK(first.at("transformer.h.0.mlp.c_fc.weight").bytes != first.at("transformer.h.1.mlp.c_fc.weight").bytes);
}

// --- dropout ---------------------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t rows = 32, columns = 24, micro_batches = 2;
constexpr double probability = 0.3;

using Exec = DefaultDevice::execution_space;
using Root = Context<Compute<Exec, float>>;

Root root(DefaultDevice& device, std::uint64_t seed = 1, std::uint64_t step = 0) {
  detail::Environment environment;
  environment.seed = seed;
  environment.step = step;
  environment.length = 4;
  return Root(device, environment);
}

template <class Context, class X>
std::vector<float> dropped(const Context& context, X x) {
  kernels::fill(x.device(), x.size(), x.data(), 1.0f);
  const Dropout dropout(context / "site", probability);
  auto step = dropout.forward(context, x);
  const auto y = copy_to_host(step.output);
  CHECK(copy_to_host(dropout.backward(context, step.saved, x)) == y);  // the same mask again
  return y;
}

std::vector<float> whole_mask(std::uint64_t seed = 1, std::uint64_t step = 0) {
  DefaultDevice device;
  return dropped(root(device, seed, step), Tensor<float, Exec>(device, {rows, columns}));
}

// Elements of this rank's x [local rows, local columns] that differ from the whole mask at (row, column).
std::size_t differences(const std::vector<float>& mine, const std::vector<float>& whole, std::size_t local_columns,
                        std::size_t row, std::size_t column) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < mine.size(); ++i)
    wrong += mine[i] != whole[(row + i / local_columns) * columns + column + i % local_columns];
  return wrong;
}

}  // namespace

TEST_CASE("dropout masks are a function of the global element") {
  const auto whole = whole_mask();
  std::size_t zeros_seen = 0;
  for (const float value : whole) {
    CHECK((value == 0 || value == float(1 / (1 - probability))));
    zeros_seen += value == 0;
  }
  CHECK(double(zeros_seen) / double(whole.size()) == doctest::Approx(probability).epsilon(0.2));
  CHECK(whole_mask() == whole);
  CHECK(whole_mask(2) != whole);
  CHECK(whole_mask(1, 1) != whole);

  for (const std::size_t tensor : {1, 2, 4, 8})
    for (const std::size_t data : {1, 2, 4}) {
      if (tensor * data > 8) continue;
      std::atomic<std::size_t> wrong = 0;
      const int code = run(RunOptions{.ranks = int(tensor * data)}, [&](World& world) {
        Mesh<dp, tp> mesh(world, {.tp = tensor});
        auto context = root(world.device()).with<Invariant<dp>>(dp{}, mesh.comm(dp{})).with<Invariant<tp>>(tp{}, mesh.comm(tp{}));
        const std::size_t share = rows / data, micro = share / micro_batches, part = std::size_t(mesh.rank(tp{}));
        for (std::size_t m = 0; m < micro_batches; ++m) {
          const std::size_t first = std::size_t(mesh.rank(dp{})) * share + m * micro;
          context.env.first_row = first;
          const auto check = [&]<class P>(P, std::size_t local_rows, std::size_t local_columns, std::size_t row,
                                          std::size_t column) {
            wrong +=
                differences(dropped(context, Tensor<float, Exec, Shard<dp, 0>, P>(world.device(), {local_rows, local_columns})),
                            whole, local_columns, row, column);
          };
          check(Invariant<tp>{}, micro, columns, first, 0);
          check(Replicated<tp>{}, micro, columns, first, 0);
          check(Partial<tp>{}, micro, columns, first, 0);
          check(Shard<tp, 1>{}, micro, columns / tensor, first, part * columns / tensor);
          if (micro % tensor == 0) check(Shard<tp, 0>{}, micro / tensor, columns, first + part * micro / tensor, 0);
        }
      });
      INFO("dp(" << data << ") * tp(" << tensor << ")");
      CHECK(code == 0);
      CHECK(wrong == 0);
    }
}

namespace {

/// Output, input gradient and parameter gradients of a layer, one after the other.
template <class Context, class Make>
std::vector<float> all_results(const Context& context, const Make& make) {
  MadeParameters made;
  auto layer = make(made.beside(context));
  using X = detail::input_t<float, Context>;
  using Home = std::conditional_t<Context::has(tp{}), replace_t<X, Invariant<tp>>, X>;
  Home x(context.device(), {8, 16});
  std::vector<float> values(x.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = float(Philox::normal(5, i));
  copy_from_host(x, std::span<const float>(values));
  auto step = weft::forward(layer, context, x);
  auto results = copy_to_host(step.output);
  const auto append = [&](const std::vector<float>& more) { results.insert(results.end(), more.begin(), more.end()); };
  append(copy_to_host(weft::backward(layer, context, std::move(step.saved), x)));
  for (const ParameterState* state : made.by_name())
    append(copy_to_host(Tensor<float, Exec>(context.device(), state->local(), state->gradient())));
  return results;
}

const auto mlp = [](const auto& context) {
  return Residual(Sequential(LayerNorm(context / "norm", 16), Linear<Column>(context / "up", 16, 32), Gelu{},
                             Linear<Row>(context / "down", 32, 16), Dropout(context / "dropout", probability)));
};
const auto recomputed_mlp = [](const auto& context) { return weft_test::Recompute(mlp(context)); };

}  // namespace

TEST_CASE("Recompute has the bits of the layer that it wraps, dropout included") {
  {
    DefaultDevice device;
    const auto context = root(device);
    const auto plain = all_results(context, mlp);
    CHECK(plain.size() == 2 * 8 * 16 + 2 * 16 + 2 * 16 * 32 + 32 + 16);
    CHECK(all_results(context, recomputed_mlp) == plain);
  }
  for (const int ranks : {2, 4}) {
    std::atomic<int> same = 0;
    CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
            const auto context = root(world.device()).with<Invariant<tp>>(tp{}, world.communicator());
            same += all_results(context, recomputed_mlp) == all_results(context, mlp);
          }) == 0);
    CHECK(same == ranks);
  }
}

// --- runs ------------------------------------------------------------------------------------------------------------------

namespace {

/// Losses and final weights of all ranks after a few steps.
struct Training {
  std::vector<std::vector<double>> losses;
  std::vector<Bytes> weights;
  friend bool operator==(const Training&, const Training&) = default;
};

Training train(std::uint64_t seed) {
  constexpr int ranks = 8, steps = 3;
  Training training{std::vector<std::vector<double>>(ranks), std::vector<Bytes>(ranks)};
  const models::GptConfig config{.vocabulary = 19, .layers = 4, .width = 32, .heads = 4, .sequence = 8, .dropout = 0.1};
  CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world, {.tp = 2, .pp = 2});
          Wrapped<models::Gpt> model(mesh, config,
                                     {.seed = seed, .data = {.first_bucket_bytes = 1 << 12, .bucket_bytes = 1 << 14}});
          optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 1.0});
          for (int step = 0; step < steps; ++step) {
            Batch batch{.sequences = 4,
                        .length = 8,
                        .micro_batches = 2,
                        .first_sequence = 4 * std::size_t(mesh.rank(dp{})),
                        .step = std::uint64_t(step)};
            for (std::size_t i = 0; i < 32; ++i) {
              const std::size_t index = batch.first_sequence * 8 + i;
              batch.tokens.push_back(std::int32_t(key_of(step, index) % 19));
              batch.targets.push_back(std::int32_t(key_of(step, index + 1) % 19));
            }
            training.losses[std::size_t(world.rank())].push_back(model.train_step(batch));
            optimizer.step();
          }
          model.for_each_state([&](ParameterState& state) {
            const Bytes bytes = bytes_of(state.value(), state.bytes());
            auto& all = training.weights[std::size_t(world.rank())];
            all.insert(all.end(), bytes.begin(), bytes.end());
          });
        }) == 0);
  return training;
}

}  // namespace

TEST_CASE("two runs with one seed are bitwise the same over eight ranks, and another seed is not") {
  const Training first = train(1);
  for (const auto& losses : first.losses) CHECK(losses == first.losses[0]);  // the same on every rank
  for (int repetition = 0; repetition < 3; ++repetition) CHECK(train(1) == first);
  const Training other = train(2);
  CHECK(other.losses != first.losses);
  CHECK(other.weights != first.weights);
}
