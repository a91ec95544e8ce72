// SPDX-License-Identifier: Apache-2.0
#pragma once
// Denoising diffusion (Ho, Jain and Abbeel, arXiv:2006.11239) of small pictures, as a stack of units: noise is added to a
// picture, as much as its time demands, and a network that is given the time predicts the noise. tp cuts the channels inside of a
// block.
//
//   FullyShardedDataParallel<TensorParallel<PipelineParallel<Diffusion<float>>>> model(mesh, {.width = 24});

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <tuple>

#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/nn/linear.hpp>
#include <weft/nn/noise.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/weft.hpp>

namespace fields {

using namespace weft;

inline constexpr data::Field<"picture", float> picture;      // [samples, 1, side, side]
inline constexpr data::Field<"remaining", float> remaining;  // [samples, 1, 1, 1]: the part of the picture that is left
inline constexpr data::Field<"spread", float> spread;        // [samples, 1, 1, 1]: the deviation of the noise
inline constexpr data::Field<"moment", float> moment;        // [samples, time_features]
using Pictures = FieldBatch<picture, remaining, spread, moment>;

inline constexpr std::size_t time_features = 16;
/// Sines and cosines of a time in [0, 1], with wavelengths from 1/8 to 4, as the positions of a transformer.
inline std::array<double, time_features> features_of(double time) {
  std::array<double, time_features> all{};
  for (std::size_t i = 0; i < time_features / 2; ++i) {
    const double angle = 2 * 3.14159265358979323846 * time * std::pow(2, 3 - 5 * double(i) / double(time_features / 2 - 1));
    all[2 * i] = std::sin(angle), all[2 * i + 1] = std::cos(angle);
  }
  return all;
}

/// x + two convolutions, with the time added to the channels between them.
struct DiffusionBlock : Module<DiffusionBlock> {
  static constexpr std::size_t groups = 4;
  GroupNorm<> norm;
  Parameter<Shard<tp, 0>> up;
  Linear<Column> shift;
  GroupNorm<Shard<tp, 0>> inside_norm;
  Parameter<Shard<tp, 1>> down;
  std::size_t dilation;
  DiffusionBlock(const auto& context, std::size_t width, std::size_t dilation)
      : norm(context / "norm", groups, width),
        up(context, "up", {width, width, 3, 3}, normal(std::sqrt(2 / (9 * double(width))))),
        shift(context / "shift", time_features, width),
        inside_norm(context / "inside_norm", groups, width),
        down(context, "down", {width, width, 3, 3}, normal(0.1 / std::sqrt(9 * double(width)))),
        dilation(dilation) {}
  auto forward(const auto& x, const auto& time, const auto& noise) const {
    const ConvolutionOptions wide{.padding = dilation, .dilation = dilation};
    const auto shifts = unflatten<1>(shift(time), 1, 1);                               // [samples, width / tp, 1, 1]
    const auto inside = conv2d(to<Replicated<tp>>(silu(norm(x))), up, wide) + shifts;  // [samples, width / tp, side, side]
    const auto change = conv2d(silu(inside_norm(inside)), down, wide);
    return std::tuple(x + to<Invariant<tp>>(change), time, noise);
  }
};

struct DiffusionConfig {
  std::size_t width = 24, blocks = 4;
};

template <class S>
struct Diffusion {
  using scalar = S;
  using Batch = Pictures;
  using Config = DiffusionConfig;

  struct First : Module<First> {
    Noise noise;
    Conv2d<> lift;
    First(const auto& context, std::size_t width)
        : noise(context / "noise"), lift(context / "lift", 1, width, 3, {.padding = 1}) {}
    auto forward(const auto& batch) const {
      const auto whole = [](const auto& x) { return to<Invariant<tp>>(x); };
      const auto clean = whole(batch[picture]);
      const auto drawn = noise.normal(clean);
      const auto noisy = clean * whole(batch[remaining]) + drawn * whole(batch[spread]);
      return std::tuple(lift(noisy), whole(batch[moment]), drawn);
    }
  };
  struct Last : Module<Last> {
    GroupNorm<> norm;
    Conv2d<> out;
    Last(const auto& context, std::size_t width)
        : norm(context / "norm", DiffusionBlock::groups, width), out(context / "out", width, 1, 3, {.padding = 1}) {}
    auto predict(const auto& x, const auto&, const auto&) const { return out(silu(norm(x))); }  // the noise
    auto forward(const auto& x, const auto& time, const auto& noise, const auto&) const {
      return mse(predict(x, time, noise), noise);
    }
  };

  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return First(context / "first", config.width); },
                 repeated(config.blocks,
                          [=](std::size_t i) {
                            return DiffusionBlock(context / "blocks" / std::to_string(i), config.width, i % 2 == 0 ? 1 : 2);
                          }),
                 [=] { return Last(context / "last", config.width); });
  }
};

}  // namespace fields
