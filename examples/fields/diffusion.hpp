// SPDX-License-Identifier: Apache-2.0
#pragma once
// Denoising diffusion (Ho, Jain and Abbeel, arXiv:2006.11239) of small pictures, as a stack of units: noise is added to a
// picture, as much as its time demands, and a network that is given the time predicts the noise. tp cuts the channels inside of a
// block, and dx and dy cut the pictures.
//
//   FullyShardedDataParallel<TensorParallel<DomainParallel<PipelineParallel<Diffusion<float>>, dx, dy>>> model(mesh, {});

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <tuple>

#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/nn/linear.hpp>
#include <weft/nn/noise.hpp>
#include <weft/weft.hpp>

namespace fields {

using namespace weft;

/// [samples, 1, side, side]
inline constexpr data::Field<"picture", float, data::Cut<dx, 2>, data::Cut<dy, 3>> picture;
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

/// x, the same for all ranks, for use beside their pieces of pictures.
auto for_pieces(const auto& x) { return to<Replicated<dy>>(to<Replicated<dx>>(to<Invariant<tp>>(x))); }

/// x + two convolutions, with the time added to the channels between them.
struct DiffusionBlock : Module<DiffusionBlock> {
  static constexpr std::size_t groups = 4;
  GroupNorm<> norm;
  Conv2d<Shard<tp, 0>> up;
  Linear<Column> shift;
  GroupNorm<Shard<tp, 0>> inside_norm;
  Conv2d<Shard<tp, 1>> down;
  DiffusionBlock(const auto& context, std::size_t width, std::size_t dilation)
      : norm(context / "norm", groups, width),
        up(context / "up", width, width, 3, options(dilation, std::sqrt(2 / (9 * double(width))))),
        shift(context / "shift", time_features, width),
        inside_norm(context / "inside_norm", groups, width),
        down(context / "down", width, width, 3, options(dilation, 0.1 / std::sqrt(9 * double(width)))) {}
  auto forward(const auto& x, const auto& time, const auto& noise) const {
    const auto shifts = unflatten<1>(shift(time), 1, 1);                     // [samples, width / tp, 1, 1]
    const auto inside = up(to<Replicated<tp>>(silu(norm(x)))) + shifts;      // [samples, width / tp, rows, columns]
    const auto change = to<Invariant<tp>>(down(silu(inside_norm(inside))));  // [samples, width, rows, columns]
    return std::tuple(x + change, time, noise);
  }

 private:
  static ConvolutionLayerOptions options(std::size_t dilation, double deviation) {
    return {.padding = dilation, .dilation = dilation, .bias = false, .initial_weight = normal(deviation)};
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
      const auto clean = to<Invariant<tp>>(batch[picture]);
      const auto drawn = noise.normal(clean);
      const auto noisy = clean * for_pieces(batch[remaining]) + drawn * for_pieces(batch[spread]);
      return std::tuple(lift(noisy), for_pieces(batch[moment]), drawn);
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
