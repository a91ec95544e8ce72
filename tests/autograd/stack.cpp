// SPDX-License-Identifier: Apache-2.0
// covers: weft/autograd/model_kind.hpp weft/pipeline/field_inputs.hpp weft/pipeline/batch_inputs.hpp weft/data/batch_share.hpp
// covers: weft/context/input_placement.hpp weft/operations/own_loss.hpp
// Models without a recipe: their kinds, the fields that reach their units, counts, costs, and refused batches.

#include <weft/autograd/model_kind.hpp>
#include <weft/autograd/stack.hpp>
#include <weft/context/input_placement.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/operations/own_loss.hpp>
#include <weft/pipeline/batch_inputs.hpp>
#include <weft/pipeline/field_inputs.hpp>

#include "support/field_models.hpp"
#include "support/field_parity.hpp"

using namespace weft_test;

namespace {

static_assert(detail::StackModel<Mlp> && !detail::ModelRecipe<Mlp> && !detail::ModuleModel<Mlp> && detail::AnyModel<Mlp>);
static_assert(detail::LossModule<MlpModule> && detail::ModuleModel<MlpModule> && !detail::StackModel<MlpModule>);
static_assert(detail::ModelRecipe<models::Gpt> && !detail::StackModel<models::Gpt> && detail::AnyModel<models::Gpt>);
static_assert(!detail::AnyModel<int> && !detail::AnyModel<Linear<>> && !detail::AnyModel<MlpConfig>);
static_assert(std::is_same_v<detail::batch_of_t<Mlp>, Mlp::Batch> && std::is_same_v<detail::batch_of_t<models::Gpt>, TokenBatch>);
static_assert(std::is_same_v<Batch, TokenBatch>);

using One = Context<Compute<DefaultDevice::execution_space, double>>;
// Numbers are converted to the model's scalar, int32 is unchanged.
static_assert(std::is_same_v<detail::field_tensor_t<One, std::remove_const_t<decltype(input_field)>>,
                             Tensor<double, DefaultDevice::execution_space>>);
static_assert(std::is_same_v<detail::field_tensor_t<One, std::remove_const_t<decltype(kind_field)>>,
                             Tensor<std::int32_t, DefaultDevice::execution_space>>);
using Cut = Context<Compute<DefaultDevice::execution_space, float>, Bind<dp>, Bind<tp>>;
static_assert(std::is_same_v<detail::field_tensor_t<Cut, std::remove_const_t<decltype(input_field)>>,
                             Tensor<float, DefaultDevice::execution_space, Shard<dp, 0>, Replicated<tp>>>);

/// A language model as a stack: fields::tokens in, the logits' squares out, masked by fields::targets.
struct Bytes {
  using scalar = double;
  struct Config {
    std::size_t width = 6;
  };
  struct First : Module<First> {
    Embedding table;
    First(const auto& context, std::size_t width) : table(context / "tokens", batch_vocabulary, width, 0.5) {}
    auto forward(const auto& batch) const { return table(batch[fields::tokens]); }
  };
  struct Last : Module<Last> {
    auto forward(const auto& x, const auto& batch) const { return sum_losses(HalfSquares()(x), batch[fields::targets]); }
  };
  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return First(context, config.width); }, [=] { return Last(); });
  }
  static std::size_t vocabulary(const Config&) { return batch_vocabulary; }
};

/// The loss is divided by the model's count; a label above the classes is refused before anything is sent.
struct Counted : Mlp {
  using Config = MlpConfig;
  static std::size_t count(const Batch& batch) { return batch.samples * 5; }
  static void check_batch(const Config& config, const Batch& batch) {
    if (batch[input_field].shape().size() != config.in) throw ShapeError("the input has another width than the model");
  }
};

}  // namespace

TEST_CASE("a loss is divided by the model's count") {
  DefaultDevice device;
  SingleDevice<Mlp> by_samples(device, {});
  SingleDevice<Counted> by_word(device, {});
  const auto batch = Mlp::make_batch({}, 1, 0, 1, 2);
  const double loss = by_samples.train_step(batch);
  CHECK(loss > 0);
  CHECK(by_word.train_step(batch) == doctest::Approx(loss / 5).epsilon(1e-14));
  auto narrow = Mlp::make_batch({.in = 4}, 1, 0, 1, 2);
  CHECK_THROWS_WITH_AS(by_word.evaluate(narrow), "weft: the input has another width than the model", ShapeError);
}

TEST_CASE("a stack on tokens counts the targets that are not masked") {
  DefaultDevice device;
  SingleDevice<Bytes> model(device, {});
  TokenBatch batch = make_batch(0, 0, 1, 2);
  const double loss = model.train_step(batch), same = model.evaluate(batch);
  CHECK(loss > 0);
  CHECK(same == doctest::Approx(loss).epsilon(1e-14));
  const auto gradient = model.gradient("tokens.weight");
  CHECK(std::any_of(gradient.begin(), gradient.end(), [](double g) { return g != 0; }));
  batch.tokens[3] = std::int32_t(batch_vocabulary);
  CHECK_THROWS_AS(model.train_step(batch), UsageError);
}

TEST_CASE("batches that do not fit are refused") {
  DefaultDevice device;
  SingleDevice<Mlp> model(device, {});
  auto batch = Mlp::make_batch({}, 0, 0, 1, 2);
  batch[wanted_field].resize(batch.samples - 1, {3});
  CHECK_THROWS_AS(model.train_step(batch), ShapeError);  // a field of another length
  auto none = Mlp::make_batch({}, 0, 0, 1, 1);
  none.samples = 0;
  none[input_field].resize(0, {6});
  none[wanted_field].resize(0, {3});
  CHECK_THROWS_WITH_AS(
      model.train_step(none),
      "weft: batch: the count of the global batch, by which its loss is divided, is 0 of 0 samples: there is no loss; "
      "leave such a batch out",
      UsageError);
  auto deep = Mlp::make_batch({}, 0, 0, 1, 1);
  deep[input_field].resize(deep.samples, {1, 1, 1, 1, 2, 3});
  CHECK_THROWS_AS(model.train_step(deep), ShapeError);  // a tensor has six dims
}

namespace {
/// Its loss divides by the samples itself, or adds up over them.
struct Divided : Module<Divided> {
  using scalar = double;
  struct Config {
    bool adds = false;
  };
  using Batch = Mlp::Batch;
  Parameter<> table;
  bool adds;
  Divided(const auto& context, const Config& config) : table(context, "table", {3, 6}, normal(0.5)), adds(config.adds) {}
  auto loss(const auto& batch) const {
    const auto rows = HalfSquares()(matmul(batch[input_field], table) - batch[wanted_field]);
    if (adds) return sum_losses(reshape(sum(rows), {1}));
    return sum_losses(rows);
  }
};
}  // namespace

TEST_CASE("a sum over samples of one's own is no loss") {
  DefaultDevice device;
  SingleDevice<Divided> right(device, {}), wrong(device, {.adds = true});
  const auto batch = Mlp::make_batch({}, 0, 0, 1, 1);
  CHECK(right.train_step(batch) > 0);
  CHECK_THROWS_WITH_AS(wrong.train_step(batch),
                       "weft: sum_losses of [1] for 8 samples: it takes one loss a sample; a mean or a sum that the model takes "
                       "itself is not a loss",
                       ShapeError);
}

TEST_CASE("ranks that have different fields get an error with the fields") {
  std::mutex mutex;
  std::vector<std::string> said;
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp, tp> mesh(world, {.tp = 2});
          DataParallel<TensorParallel<Mlp>> model(mesh, {});
          auto batch = Mlp::make_batch({}, 0, 0, 1, 1);
          if (world.rank() == 1) batch[wanted_field].writable()[1] += 1;
          try {
            model.train_step(batch);
          } catch (const UsageError& error) {
            std::lock_guard lock(mutex);
            said.push_back(error.what());
          }
        }) == 0);
  REQUIRE(said.size() == 2);
  CHECK(said[0].starts_with("weft: batch: wanted on tp rank 1 is not tp rank 0's: the 2 ranks of tp work on one share"));
}
