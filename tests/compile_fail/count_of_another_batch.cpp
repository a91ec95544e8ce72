// SPDX-License-Identifier: Apache-2.0
// A count that does not accept the model's batch.
// expect: this model.s count cannot be called with its batch
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
    return Stack([=] { return Stem(context / "stem", config.width); }, [=] { return Loss(context / "loss", config.width); });
  }
#ifdef WEFT_FAIL
  static std::size_t count(const Config&) { return 1; }
#else
  static std::size_t count(const Batch& batch) { return batch.samples; }
#endif
};
double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}
