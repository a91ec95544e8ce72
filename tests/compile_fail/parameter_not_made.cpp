// SPDX-License-Identifier: Apache-2.0
// A constructor that forgets a parameter.
// expect: a Parameter is made in the constructor of its layer, from the context, its name, its whole shape
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;
struct Front : Module<Front> {
  Parameter<> weight;
#ifdef WEFT_FAIL
  Front(const auto&, std::size_t) {}
#else
  Front(const auto& context, std::size_t width) : weight(context, "weight", {width, width}, ones) {}
#endif
  auto forward(const auto& batch) const { return matmul(batch[input], weight); }
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
    return Stack([=] { return Front(context / "front", config.width); }, [=] { return Loss(context / "loss", config.width); });
  }
};
void go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  model.train_step(batch);
}
