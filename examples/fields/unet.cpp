// SPDX-License-Identifier: Apache-2.0
#include "unet.hpp"

#include <array>
#include <string>
#include <type_traits>

#include "problem.hpp"
#include "training.hpp"

namespace fields {

namespace {

template <int Dims>
struct UnetProblem {
  using Laid = std::conditional_t<Dims == 2, LaidInSpace<Unet<float, Dims>, dx, dy>, LaidInSpace<Unet<float, Dims>, dx, dy, dz>>;
  static constexpr Defaults defaults{
      .title = Dims == 2 ? "U-Net of two dims" : "U-Net of three dims", .unit = "fields", .steps = Dims == 2 ? 300u : 60u};
  static void require_degrees(std::size_t tp, const std::array<Part, 3>& space) {
    constexpr std::size_t side = FlowSamples<Dims>::side;
    require_whole_groups(UnetBlock<Dims>::groups, tp);
    for (std::size_t dim = 0; dim < 3; ++dim)
      require_degree(side % (4 * space[dim].ranks) == 0, axes_of_space[dim], space[dim].ranks,
                     std::to_string(side) + " points are not equal pieces of 4, 8, ... points, which the U-Net halves twice");
  }
  static Flow batch(const Wanted& wanted) { return FlowSamples<Dims>::batch(wanted); }
  static Report report(const Options& o, std::size_t shares, const auto& predict) {
    const std::size_t count = shared_by(Dims == 2 ? 16 : 4, shares);
    const auto make = [](Wanted wanted) {
      wanted.first += first_unseen;
      return batch(wanted);
    };
    return FlowSamples<Dims>::report(make({o.seed, 0, count}), predict(count, make));
  }
};

}  // namespace

int train_unet(World& world, const Options& o) {
  return o.dims == 2 ? train<UnetProblem<2>>(world, o) : train<UnetProblem<3>>(world, o);
}

}  // namespace fields
