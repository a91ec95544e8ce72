// SPDX-License-Identifier: Apache-2.0
// A layer with its own backward returns a struct with a member that is not a tensor.
// expect: this layer returns something else than a tensor, or a std::tuple or a struct of tensors
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;
struct Stem : Module<Stem> {
  Parameter<> weight;
  Stem(const auto& context, std::size_t width) : weight(context, "weight", {width, width}, ones) {}
  auto forward(const auto& batch) const { return matmul(batch[input], weight); }
};
template <class A, class B>
struct Both {
  A a;
  B b;
};
template <class A, class B>
Both(A, B) -> Both<A, B>;
template <class A, class B>
struct Timed {
  A a;
  B b;
  double time = 0;
};
struct Twice : Primitive<Twice> {
  auto backward(const auto&, Nothing, const auto& g) const { return add(g.a, g.b); }
#ifdef WEFT_FAIL
  template <class X>
  auto forward(const auto&, const X& x) const {
    return Result{Timed<X, X>{x, x}, Nothing {}};
  }
#else
  auto forward(const auto&, const auto& x) const { return Result{Both{x, x}, Nothing{}}; }
#endif
};
struct Sum : Module<Sum> {
  auto forward(const auto& both) const { return both.a + both.b; }
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
