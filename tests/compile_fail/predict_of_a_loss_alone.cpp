// SPDX-License-Identifier: Apache-2.0
// predict of a stack whose last unit only returns its loss.
// expect: predict of a model whose last unit has only a loss
// mention: Loss
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;
struct Stem : Module<Stem> {
  Parameter<> weight;
  Stem(const auto& context, std::size_t width) : weight(context, "weight", {width, width}, ones) {}
  auto forward(const auto& batch) const { return matmul(batch[input], weight); }
};
struct Loss : Module<Loss> {
  Parameter<> weight;
  Loss(const auto& context, std::size_t width) : weight(context, "weight", {1, width}, ones) {}
#ifndef WEFT_FAIL
  auto predict(const auto& x) const { return matmul(x, weight); }
#endif
  auto forward(const auto& x, const auto&) const { return sum_losses(matmul(x, weight)); }
};
struct Net {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return Stem(context / "stem", config.width); }, [=] { return Loss(context / "loss", config.width); });
  }
};
Prediction go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.predict(batch);
}
