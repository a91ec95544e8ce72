// SPDX-License-Identifier: Apache-2.0
// A stack of layers instead of functions that make them.
// expect: a Stack is made of functions that make layers
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;
struct Stem : Module<Stem> {
  Parameter<> weight;
  Stem(const auto& context, std::size_t width) : weight(context, "weight", {width, width}, ones) {}
  auto forward(const auto& batch) const { return matmul(batch[input], weight); }
};
struct Twice : Module<Twice> {
  auto forward(const auto& x) const { return std::tuple(x, x); }
};
struct Sum : Module<Sum> {
  auto forward(const auto& x, const auto& y) const { return x + y; }
};
struct Loss : Module<Loss> {
  Parameter<> weight;
  Loss(const auto& context, std::size_t width) : weight(context, "weight", {1, width}, ones) {}
  auto forward(const auto& x, const auto&) const { return sum_losses(matmul(x, weight)); }
};
struct Net {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  static auto stack(const auto& context, const Config& config) {
#ifdef WEFT_FAIL
    return Stack(Stem(context / "stem", config.width), [=] { return Loss(context / "loss", config.width); });
#else
    return Stack([=] { return Stem(context / "stem", config.width); }, [=] { return Loss(context / "loss", config.width); });
#endif
  }
};
double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}
