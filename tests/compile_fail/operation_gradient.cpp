// SPDX-License-Identifier: Apache-2.0
// Operations with a gradient of their user.
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

// section: nothing
// An operation that returns Nothing as the gradient of real numbers.
// expect: backward returned Nothing for an input of real numbers
// mention: operation_gradient.cpp:
struct Twice : Primitive<Twice> {
  auto forward(const auto& x) const { return scale(x, 2); }
  auto gradient(const auto& g, const auto&) const {
#ifdef WEFT_FAIL
    return Nothing{};
#else
    return scale(g, 2);
#endif
  }
};

struct Own : Module<Own> {
  LayerNorm norm;
  Own(const auto& context, std::size_t width) : norm(context, width) {}
  auto forward(const auto& x) const { return Twice()(norm(x)); }
};

struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t) { return Own(context, config.width); }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: of_one_operand
// An operation of two operands whose gradient function returns only one gradient.
// expect: this Primitive's gradient\(g, x\.\.\.\) of several operands returns something else than a std::tuple
struct Product : Primitive<Product> {
  auto forward(const auto& x, const auto& y) const { return times(x, y); }
#ifdef WEFT_FAIL
  auto gradient(const auto& g, const auto&, const auto& y) const { return times(g, y); }
#else
  auto gradient(const auto& g, const auto& x, const auto& y) const { return std::tuple{times(g, y), times(g, x)}; }
#endif
};

struct Square : Module<Square> {
  auto forward(const auto& x) const { return Product()(x, x * 2); }
};

auto go() {
  return testing::check_layer([](const auto&) { return Square(); }, {3, 4});
}
