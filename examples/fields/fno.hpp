// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Fourier neural operator (Li et al., arXiv:2010.08895) of periodic images, as a stack of units. Each layer mixes the channels
// of the lowest frequencies by complex weights, and those of each point by a 1 x 1 convolution. tp cuts the channels that a layer
// makes, and dx and dy cut the images.
//
//   FullyShardedDataParallel<TensorParallel<DomainParallel<PipelineParallel<Fno<float>>, dx, dy>>> model(mesh, {.modes = 6});

#include <cstddef>
#include <string>

#include <weft/nn/convolution.hpp>
#include <weft/operations/einsum.hpp>
#include <weft/operations/fourier.hpp>
#include <weft/operations/moves.hpp>
#include <weft/weft.hpp>

#include "flow.hpp"

namespace fields {

/// Complex weights of `modes` x `modes` frequencies: real and imaginary parts.
struct ModeWeights : Module<ModeWeights> {
  Parameter<Shard<tp, 1>> real, imaginary;
  ModeWeights(const auto& context, std::size_t in, std::size_t out, std::size_t modes)
      : real(context, "real", {in, out, modes, modes}, uniform(1 / double(in))),
        imaginary(context, "imaginary", {in, out, modes, modes}, uniform(1 / double(in))) {}
  /// z [samples, in, modes, modes, 2], real and imaginary parts in the last dim.
  auto forward(const auto& z) const {
    const auto a = flatten<3, 4>(slice<4>(z, 0, 1)), b = flatten<3, 4>(slice<4>(z, 1, 1));  // [samples, in, modes, modes]
    const auto mixed = [](const auto& x, const auto& w) { return einsum<"nixy,ioxy->noxy">(x, w); };
    return concat<4>(unflatten<3>(mixed(a, real) - mixed(b, imaginary), 1),
                     unflatten<3>(mixed(a, imaginary) + mixed(b, real), 1));  // [samples, out / tp, modes, modes, 2]
  }
};

/// A convolution with the whole image, in Fourier space. The lowest frequencies of dim 2 are at both ends of the spectrum, those
/// of dim 3 at its beginning: the other half follows from them. Each rank of dx and dy has these few frequencies whole. While dim
/// 2 or 3 is transformed, its axis cuts the channels in its place.
struct SpectralConvolution : Module<SpectralConvolution> {
  ModeWeights ahead, back;
  std::size_t modes;
  SpectralConvolution(const auto& context, std::size_t in, std::size_t out, std::size_t modes)
      : ahead(context / "ahead", in, out, modes), back(context / "back", in, out, modes), modes(modes) {}
  auto forward(const auto& x) const {
    const auto across = to<Shard<dy, 1>>(x);                                  // [samples, in / dy, rows / dx, columns]
    const auto low = to<Invariant<dy>>(slice<3>(rfft<3>(across), 0, modes));  // [samples, in, rows / dx, modes, 2]
    const auto down = fft<2>(to<Shard<dx, 1>>(low));                          // [samples, in / dx, rows, modes, 2]
    const std::size_t rows = down.shape()[2], columns = across.shape()[3];
    const auto part = [&](std::size_t first) { return to<Invariant<dx>>(slice<2>(down, first, modes)); };
    const auto first = ahead(part(0)), last = back(part(rows - modes));          // [samples, out / tp, modes, modes, 2]
    const auto all = concat<2>(pad<2>(first, 0, rows - 2 * modes), last);        // [samples, out / tp, rows, modes, 2]
    const auto up = to<Shard<dx, 2>>(ifft<2>(to<Shard<dx, 1>>(all)));            // [samples, out / tp, rows / dx, modes, 2]
    const auto wide = pad<3>(to<Shard<dy, 1>>(up), 0, columns / 2 + 1 - modes);  // [samples, out / tp / dy, ...]
    return to<Shard<dy, 3>>(irfft<3>(wide, columns));                            // [samples, out / tp, rows / dx, columns / dy]
  }
};

struct FnoConfig {
  std::size_t width = 16, modes = 6, layers = 3;
};

template <class S>
struct Fno {
  using scalar = S;
  using Batch = Flow;
  using Config = FnoConfig;

  struct First : Module<First> {
    Conv2d<> lift;
    First(const auto& context, std::size_t width) : lift(context / "lift", 3, width, 1) {}
    auto forward(const auto& batch) const { return lift(to<Invariant<tp>>(batch[now])); }  // [samples, width, rows, columns]
  };
  struct Layer : Module<Layer> {
    SpectralConvolution spectral;
    Conv2d<Shard<tp, 0>> point;
    Layer(const auto& context, const Config& config)
        : spectral(context / "spectral", config.width, config.width, config.modes),
          point(context / "point", config.width, config.width, 1) {}
    auto forward(const auto& x) const {
      const auto whole = to<Replicated<tp>>(x);
      return to<Invariant<tp>>(gelu(spectral(whole) + point(whole)));
    }
  };
  struct Last : Module<Last> {
    Conv2d<> inside, out;
    Last(const auto& context, std::size_t width)
        : inside(context / "inside", width, 2 * width, 1), out(context / "out", 2 * width, 1, 1) {}
    auto predict(const auto& x) const { return out(gelu(inside(x))); }  // [samples, 1, rows, columns]
    auto forward(const auto& x, const auto& batch) const { return mse(predict(x), to<Invariant<tp>>(batch[later])); }
  };

  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return First(context / "first", config.width); },
                 repeated(config.layers, [=](std::size_t i) { return Layer(context / "layers" / std::to_string(i), config); }),
                 [=] { return Last(context / "last", config.width); });
  }
};

}  // namespace fields
