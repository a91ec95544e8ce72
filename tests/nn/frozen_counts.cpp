// SPDX-License-Identifier: Apache-2.0
// Layers that keep numbers from step to step, running statistics and the load of experts, count the same in a part of the model
// that is frozen and has no backward.

#include <weft/nn/batch_norm.hpp>

#include "support/field_models.hpp"
#include "support/matrix.hpp"

using namespace weft_test;

namespace {

inline constexpr data::Field<"image", float> image_field;

struct Convolved : Module<Convolved> {
  Linear<> linear;
  BatchNorm<> norm;
  Sequential<Linear<>, BatchNorm<>> chain;
  Convolved(const auto& context, std::size_t width)
      : linear(context / "linear", width, width),
        norm(context / "norm", width),
        chain(Linear<>(context / "chain" / "linear", width, width), BatchNorm<>(context / "chain" / "norm", width)) {}
  auto forward(const auto& x) const { return chain(norm(linear(x))); }
};
struct Config {
  std::size_t width = 4;
};
struct AsModule : Module<AsModule> {
  using scalar = double;
  using Config = ::Config;
  using Batch = FieldBatch<image_field>;
  Convolved encoder;
  Linear<> head;
  AsModule(const auto& context, const Config& config)
      : encoder(context / "encoder", config.width), head(context / "head", config.width, config.width) {}
  auto loss(const auto& batch) const { return sum_losses(HalfSquares()(head(encoder(batch[image_field])))); }
};
struct Encoder : Module<Encoder> {
  Convolved inner;
  Encoder(const auto& context, std::size_t width) : inner(context, width) {}
  auto forward(const auto& batch) const { return inner(batch[image_field]); }
};
struct Head : Module<Head> {
  Linear<> head;
  Head(const auto& context, std::size_t width) : head(context, width, width) {}
  auto forward(const auto& x, const auto&) const { return sum_losses(HalfSquares()(head(x))); }
};
struct AsStack {
  using scalar = double;
  using Config = ::Config;
  using Batch = AsModule::Batch;
  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return Encoder(context / "encoder", config.width); },
                 [=] { return Head(context / "head", config.width); });
  }
};

struct Experts : Module<Experts> {
  using scalar = double;
  using Config = ::Config;
  using Batch = FieldBatch<image_field>;
  Mixture experts;
  Linear<> head;
  Experts(const auto& context, const Config& config)
      : experts(context / "encoder", config.width, 2 * config.width, {.experts = 4, .auxiliary_loss = 0, .bias_rate = 0.1}),
        head(context / "head", config.width, config.width) {}
  auto loss(const auto& batch) const { return sum_losses(HalfSquares()(head(experts(batch[image_field])))); }
};

/// The numbers after a step, with and without a frozen part.
template <class Model>
void check_counts(const typename Model::Config& config, const auto& batch, std::vector<std::string> frozen, std::size_t buffers) {
  std::vector<double> seen[2];
  for (const bool freezes : {false, true}) {
    DefaultDevice device;
    SingleDevice<Model> model(device, config, ModelOptions{.freeze = freezes ? frozen : std::vector<std::string>()});
    model.train_step(batch);
    CHECK(model.buffers().size() == buffers);
    for (const auto& buffer : model.buffers())
      for (const double value : buffer->value) seen[freezes].push_back(value);
  }
  double sum = 0;
  for (const double value : seen[0]) sum += std::abs(value);
  CHECK(sum > 0);
  CHECK(seen[1] == seen[0]);
}

}  // namespace

TEST_CASE("running statistics and experts of a frozen encoder") {
  auto batch = share_of_samples<AsModule::Batch>(0, 0, 1, 2);
  fill_field(batch, image_field, 1, {4});
  check_counts<AsModule>({}, batch, {"encoder.*"}, 2);
  check_counts<AsStack>({}, batch, {"encoder.*"}, 2);
  check_counts<Experts>({}, batch, {"encoder.*"}, 2);
}
TEST_CASE("the load of frozen experts") {
  models::MixtralConfig config{.vocabulary = batch_vocabulary, .layers = 2, .width = 16, .heads = 4, .kv_heads = 2};
  config.sequence = batch_length;
  config.experts = 4;
  config.bias_rate = 0.1;
  using Model = models::BasicMixtral<double>;
  DefaultDevice device;
  SingleDevice<Model> model(device, config);
  std::vector<std::string> frozen;
  for (const std::string& name : model.parameter_names())
    if (name.find("lm_head") == std::string::npos) frozen.push_back(name);
  REQUIRE(frozen.size() < model.parameter_names().size());
  check_counts<Model>(config, make_batch(0, 0, 1, 2), frozen, model.buffers().size());
}
TEST_CASE("one expert alone is trained: the ranks of the others have its backward, too") {
  models::MixtralConfig config{.vocabulary = batch_vocabulary, .layers = 2, .width = 16, .heads = 4, .kv_heads = 2};
  config.sequence = batch_length;
  config.experts = 4;
  using Model = models::BasicMixtral<double>;
  const auto train = [&](auto& model, std::size_t rank, std::size_t ranks) {
    model.freeze("*");
    model.unfreeze("*.1.*.experts.3.*");
    optim::Sgd optimizer(model, {.learning_rate = 0.1});
    std::vector<double> all;
    for (std::uint64_t step = 0; step < 2; ++step) {
      all.push_back(model.train_step(make_batch(step, rank, ranks, 2)));
      all.push_back(optimizer.step().gradient_norm);
    }
    return all;
  };
  DefaultDevice device;
  SingleDevice<Model> one(device, config);
  const std::vector<double> expected = train(one, 0, 1);
  CHECK(expected[1] > 0);
  for (const std::size_t pipeline : {1, 2}) {
    std::mutex mutex;
    double largest = 0;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(2 * pipeline)}, [&](World& world) {
            ExpertMesh mesh(world, {.ep = 2, .pp = pipeline});
            SequenceExperts model(mesh, config, {.shard = {.stage = 3}});
            const std::vector<double> seen = train(model, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})));
            std::lock_guard lock(mutex);
            for (std::size_t i = 0; i < seen.size(); ++i) largest = std::max(largest, std::abs(seen[i] / expected[i] - 1));
          }) == 0);
    CHECK(largest <= 1e-12);
  }
}
