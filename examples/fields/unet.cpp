// SPDX-License-Identifier: Apache-2.0
#include "unet.hpp"

#include "problem.hpp"
#include "training.hpp"

namespace fields {

namespace {

template <int Dims>
struct UnetProblem {
  using Model = Unet<float, Dims>;
  static constexpr Defaults defaults{
      .title = Dims == 2 ? "U-Net of two dims" : "U-Net of three dims", .unit = "fields", .steps = Dims == 2 ? 300u : 60u};
  static Flow batch(std::uint64_t seed, std::uint64_t first, std::size_t count, std::size_t) {
    return FlowSamples<Dims>::batch(seed, first, count);
  }
  static Report report(const Options& o, std::size_t shares, const auto& predict) {
    const std::size_t count = shared_by(Dims == 2 ? 16 : 4, shares);
    const auto make = [&](std::size_t first, std::size_t samples) {
      return FlowSamples<Dims>::batch(o.seed, first_unseen + first, samples);
    };
    return FlowSamples<Dims>::report(make(0, count), predict(count, make));
  }
};

}  // namespace

int train_unet(World& world, const Options& o) {
  return o.dims == 2 ? train<UnetProblem<2>>(world, o) : train<UnetProblem<3>>(world, o);
}

}  // namespace fields
