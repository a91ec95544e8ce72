// SPDX-License-Identifier: Apache-2.0
#pragma once
// A U-Net (Ronneberger et al., arXiv:1505.04597) of periodic images or volumes, as a stack of units: two levels down, two up, and
// each level up also reads the images of its level on the way down. tp cuts channels, and dx, dy and dz cut the images.
//
//   FullyShardedDataParallel<TensorParallel<DomainParallel<PipelineParallel<Unet<float, 2>>, dx, dy>>> model(mesh, {});

#include <cstddef>
#include <tuple>
#include <type_traits>

#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/upsample.hpp>
#include <weft/weft.hpp>

#include "flow.hpp"

namespace fields {

template <int Dims>
auto halve(const auto& x) {
  if constexpr (Dims == 2) return avg_pool2d(x, {.kernel = 2});
  else return avg_pool3d(x, {.kernel = 2});
}
template <int Dims, Placement... Rules>
using Convolution = std::conditional_t<Dims == 2, Conv2d<Rules...>, Conv3d<Rules...>>;

/// Two convolutions of periodic images, each with GroupNorm and SiLU. tp cuts the channels that each of them makes.
template <int Dims>
struct UnetBlock : Module<UnetBlock<Dims>> {
  static constexpr std::size_t groups = 4;
  Convolution<Dims, Shard<tp, 0>> conv1, conv2;
  GroupNorm<Shard<tp, 0>> norm1, norm2;
  UnetBlock(const auto& context, std::size_t in, std::size_t out)
      : conv1(context / "conv1", in, out, 3, options()),
        conv2(context / "conv2", out, out, 3, options()),
        norm1(context / "norm1", groups, out),
        norm2(context / "norm2", groups, out) {}
  auto forward(const auto& x) const {
    const auto y = silu(norm1(conv1(to<Replicated<tp>>(x))));  // [samples, out / tp, side...]
    const auto z = silu(norm2(conv2(to<Replicated<tp>>(y))));
    return to<Invariant<tp>>(z);  // [samples, out, side...]
  }

 private:
  static ConvolutionLayerOptions options() { return {.padding = 1, .bias = false, .mode = PaddingMode::periodic}; }
};

struct UnetConfig {
  std::size_t channels = 16;  ///< of the first level; each further one has twice as many
};

template <class S, int Dims>
struct Unet {
  using scalar = S;
  using Batch = Flow;
  using Config = UnetConfig;
  using Block = UnetBlock<Dims>;

  struct First : Module<First> {
    Block block;
    First(const auto& context, std::size_t out) : block(context, 1 + Dims, out) {}
    auto forward(const auto& batch) const { return block(to<Invariant<tp>>(batch[now])); }
  };
  /// A level further down; `above`: the images of the levels that it came from, which are kept for the way up.
  struct Down : Module<Down> {
    Block block;
    Down(const auto& context, std::size_t in) : block(context, in, 2 * in) {}
    auto forward(const auto& x, const auto&... above) const { return std::tuple(block(halve<Dims>(x)), x, above...); }
  };
  struct Up : Module<Up> {
    Block block;
    Up(const auto& context, std::size_t out) : block(context, 3 * out, out) {}
    auto forward(const auto& x, const auto& beside, const auto&... above) const {
      const auto y = block(concat<1>(upsample(x, {.factor = 2}), beside));
      if constexpr (sizeof...(above) == 0) return y;
      else return std::tuple(y, above...);
    }
  };
  struct Last : Module<Last> {
    Convolution<Dims> out;
    Last(const auto& context, std::size_t in) : out(context / "out", in, 1, 1) {}
    auto predict(const auto& x) const { return out(x); }  // [samples, 1, side...]
    auto forward(const auto& x, const auto& batch) const { return mse(predict(x), to<Invariant<tp>>(batch[later])); }
  };

  static auto stack(const auto& context, const Config& config) {
    const std::size_t channels = config.channels;
    return Stack([=] { return First(context / "first", channels); },     // side
                 [=] { return Down(context / "down1", channels); },      // side / 2
                 [=] { return Down(context / "down2", 2 * channels); },  // side / 4
                 [=] { return Up(context / "up2", 2 * channels); },      // side / 2
                 [=] { return Up(context / "up1", channels); },          // side
                 [=] { return Last(context / "last", channels); });
  }
};

}  // namespace fields
