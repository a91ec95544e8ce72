// SPDX-License-Identifier: Apache-2.0
// A C++ mistake in the forward of a stack's unit gives only the compiler's error, and none for its neighbours.
// expect: no member named .no_such_member
// mention: stack_error_in_a_unit.cpp:
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
#ifdef WEFT_FAIL
  auto forward(const auto& x, const auto& y) const { return x + y.no_such_member(); }
#else
  auto forward(const auto& x, const auto& y) const { return x + y; }
#endif
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
    return Stack([=] { return Stem(context / "stem", config.width); }, [] { return Twice(); }, [] { return Sum(); },
                 [=] { return Loss(context / "loss", config.width); });
  }
};
double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}
