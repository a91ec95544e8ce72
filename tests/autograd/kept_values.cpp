// SPDX-License-Identifier: Apache-2.0
// Numbers that a layer keeps: the model lists them under the layer's path on the ranks that have the layer, and neither training
// nor evaluation changes them.

#include <doctest/doctest.h>

#include <weft/autograd/kept_values.hpp>

#include "support/field_models.hpp"

using namespace weft_test;

namespace {

struct Counting : Module<Counting> {
  TwoLayers layers;
  std::shared_ptr<std::vector<double>> seen;
  Counting(const auto& context, const MlpConfig& config)
      : layers(context, config.in, 2 * config.width, config.width), seen(kept_values(context, "seen", 2)) {}
  auto forward(const auto& batch) const { return to_hidden(layers(batch[input_field])); }
};
struct CountingMlp : Mlp {
  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return Counting(context / "first", config); },
                 [=] { return Last(TwoLayers(context / "last", config.width, 2 * config.width, config.out)); });
  }
};

}  // namespace

TEST_CASE("kept values are the model's, zero at first, and changed only by their owner") {
  DefaultDevice device;
  SingleDevice<CountingMlp> model(device, MlpConfig{});
  optim::AdamW optimizer(model);
  REQUIRE(model.buffers().size() == 1);
  auto& buffer = *model.buffers()[0];
  CHECK(buffer.name == "first.seen");
  CHECK(buffer.value == std::vector<double>{0, 0});
  buffer.value = {3, 0.5};
  for (int step = 0; step < 2; ++step) {
    model.train_step(Mlp::make_batch({}, std::uint64_t(step), 0, 1, 2));
    optimizer.step();
    model.evaluate(Mlp::make_batch({}, 7, 0, 1, 1));
  }
  CHECK(buffer.value == std::vector<double>{3, 0.5});
}

TEST_CASE("kept values on the ranks of a pipeline") {
  CHECK(runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
          Mesh<dp, pp> mesh(world, {.pp = 2});
          DataParallel<PipelineParallel<CountingMlp>> model(mesh, MlpConfig{});
          CHECK(model.buffers().size() == (mesh.rank(pp{}) == 0 ? 1 : 0));
          model.train_step(Mlp::make_batch({}, 0, std::size_t(mesh.rank(dp{})), 2, 2));
        }) == 0);
}
