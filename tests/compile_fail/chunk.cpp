// SPDX-License-Identifier: Apache-2.0
// Parts of a tensor.
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

struct Front : Module<Front> {
  Parameter<> weight;
  Front(const auto& context, std::size_t width) : weight(context, "weight", {width, width}, ones) {}
  auto forward(const auto& batch) const { return matmul(batch[input], weight); }
};

// section: of_a_refused_value
// Parts of a refused value are refused silently.
// expect: there is no operation tan: map
struct Loss : Module<Loss> {
  Parameter<> weight;
  Loss(const auto& context, std::size_t width) : weight(context, "weight", {1, width}, ones) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x, const auto&) const {
    auto [a, b] = chunk<1, 2>(tan(x));
    return sum_losses(matmul(concat<1>(a, b), weight));
  }
#else
  auto forward(const auto& x, const auto&) const {
    auto [a, b] = chunk<1, 2>(tanh(x));
    return sum_losses(matmul(concat<1>(a, b), weight));
  }
#endif
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

// section: of_other_arguments
// Parts as PyTorch makes them: the number, then the dim.
// expect: chunk cannot be called with these arguments: write chunk<dim, count>
struct Loss : Module<Loss> {
  Parameter<> weight;
  Loss(const auto& context, std::size_t width) : weight(context, "weight", {1, width}, ones) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x, const auto&) const {
    auto [a, b] = chunk(x, 2, 1);
    return sum_losses(matmul(concat<1>(a, b), weight));
  }
#else
  auto forward(const auto& x, const auto&) const {
    auto [a, b] = chunk<1, 2>(x);
    return sum_losses(matmul(concat<1>(a, b), weight));
  }
#endif
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
