// SPDX-License-Identifier: Apache-2.0
#pragma once
// A U-Net (Ronneberger et al., arXiv:1505.04597) of periodic images or volumes, as a stack of units: two levels down, two up, and
// each level up also reads the images of its level on the way down. tp cuts the channels inside of a block.
//
//   FullyShardedDataParallel<TensorParallel<PipelineParallel<Unet<float, 2>>>> model(mesh, {.channels = 16});

#include <cmath>
#include <cstddef>
#include <tuple>

#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/upsample.hpp>
#include <weft/weft.hpp>

#include "flow.hpp"

namespace fields {

/// A 3 x 3 or 3 x 3 x 3 convolution of periodic images, without bias.
template <int Dims>
auto convolve(const auto& x, const auto& weight) {
  constexpr ConvolutionOptions options{.padding = 1, .mode = PaddingMode::periodic};
  if constexpr (Dims == 2) return conv2d(x, weight, options);
  else return conv3d(x, weight, options);
}
template <int Dims>
auto halve(const auto& x) {
  if constexpr (Dims == 2) return avg_pool2d(x, {.kernel = 2});
  else return avg_pool3d(x, {.kernel = 2});
}

/// Two convolutions, each with GroupNorm and SiLU.
template <int Dims>
struct UnetBlock : Module<UnetBlock<Dims>> {
  static constexpr std::size_t groups = 4;
  Parameter<Shard<tp, 0>> up;
  GroupNorm<Shard<tp, 0>> up_norm;
  Parameter<Shard<tp, 1>> down;
  GroupNorm<> down_norm;
  UnetBlock(const auto& context, std::size_t in, std::size_t out)
      : up(context, "up", kernel(in, out), deviation(in)),
        up_norm(context / "up_norm", groups, out),
        down(context, "down", kernel(out, out), deviation(out)),
        down_norm(context / "down_norm", groups, out) {}
  auto forward(const auto& x) const {
    const auto inside = silu(up_norm(convolve<Dims>(to<Replicated<tp>>(x), up)));  // [samples, out / tp, side...]
    return silu(down_norm(to<Invariant<tp>>(convolve<Dims>(inside, down))));       // [samples, out, side...]
  }

 private:
  static Shape kernel(std::size_t in, std::size_t out) { return Dims == 2 ? Shape{out, in, 3, 3} : Shape{out, in, 3, 3, 3}; }
  static auto deviation(std::size_t in) { return normal(std::sqrt(2 / (double(in) * std::pow(3, Dims)))); }
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
    std::conditional_t<Dims == 2, Conv2d<>, Conv3d<>> out;
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
