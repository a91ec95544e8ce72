// SPDX-License-Identifier: Apache-2.0
#pragma once
// A physics-informed network (Raissi, Perdikaris and Karniadakis, arXiv:1711.10561): u(x, t) whose derivatives satisfy Burgers'
// equation at random points, and whose values are given at the start and at the two walls. It sees no solution.
//
//   FullyShardedDataParallel<TensorParallel<Pinn<float>>> model(mesh, {.width = 32});

#include <cstddef>
#include <tuple>

#include <weft/nn/linear.hpp>
#include <weft/operations/grad.hpp>
#include <weft/weft.hpp>

namespace fields {

using namespace weft;

inline constexpr data::Field<"inside", float> inside;  // [samples, 2]: x and t, where the equation holds
inline constexpr data::Field<"border", float> border;  // [samples, 2]: x and t, where u is given
inline constexpr data::Field<"given", float> given;    // [samples, 1]: u there
using Points = FieldBatch<inside, border, given>;

/// Two layers; tp cuts the units between them.
struct PinnBlock : Module<PinnBlock> {
  Linear<Column> up;
  Linear<Row> down;
  PinnBlock(const auto& context, std::size_t in, std::size_t width)
      : up(context / "up", in, width), down(context / "down", width, width) {}
  auto forward(const auto& x) const { return tanh(to<Invariant<tp>>(down(tanh(up(x))))); }
};

struct PinnConfig {
  std::size_t width = 32;
};

template <class S>
struct Pinn : Module<Pinn<S>> {
  using scalar = S;
  using Batch = Points;
  using Config = PinnConfig;
  static constexpr double viscosity = 0.05, border_weight = 4;
  PinnBlock first, second;
  Linear<> last;
  Pinn(const auto& context, const Config& config)
      : first(context / "first", 2, config.width),
        second(context / "second", config.width, config.width),
        last(context / "last", config.width, 1) {}

  auto u(const auto& point) const { return last(second(first(point))); }  // [samples, 1]
  /// u_t + u u_x - ν u_xx
  auto residual(const auto& point) const {
    const auto value = [&](const auto& p) { return u(p); };
    const auto by_x = [](const auto& slopes) { return slice<1>(slopes, 0, 1); };
    const auto by_t = [](const auto& slopes) { return slice<1>(slopes, 1, 1); };
    const auto slopes = grad(value, point);                                                // [samples, 2]
    const auto second = grad([&](const auto& p) { return by_x(grad(value, p)); }, point);  // [samples, 2]
    return by_t(slopes) + u(point) * by_x(slopes) - viscosity * by_x(second);
  }
  auto predict(const auto& batch) const { return u(to<Invariant<tp>>(batch[inside])); }
  auto loss(const auto& batch) const {
    const auto equation = sum<1>(square(residual(to<Invariant<tp>>(batch[inside]))));
    return sum_losses(equation) + border_weight * mse(u(to<Invariant<tp>>(batch[border])), to<Invariant<tp>>(batch[given]));
  }
};

}  // namespace fields
