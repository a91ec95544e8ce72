// SPDX-License-Identifier: Apache-2.0
#include "fno.hpp"

#include <array>
#include <string>

#include "problem.hpp"
#include "training.hpp"

namespace fields {

namespace {

struct FnoProblem {
  using Laid = LaidInSpace<Fno<float>, dx, dy>;
  static constexpr Defaults defaults{.title = "Fourier neural operator", .unit = "fields", .steps = 300, .learning_rate = 5e-3};
  static void require_degrees(std::size_t tp, const std::array<Part, 3>& space) {
    constexpr std::size_t side = FlowSamples<2>::side;
    const std::size_t width = FnoConfig().width;
    if (width % tp != 0) return;  // the model's constructor refuses it
    for (std::size_t dim = 0; dim < 2; ++dim) {
      const std::size_t ranks = space[dim].ranks;
      require_degree(side % ranks == 0 && width / tp % ranks == 0, axes_of_space[dim], ranks,
                     std::to_string(side) + " points and " + std::to_string(width / tp) + " channels" +
                         (tp > 1 ? " of a rank of tp(" + std::to_string(tp) + ")" : "") + " are not both equal pieces");
    }
  }
  static Flow batch(const Wanted& wanted) { return FlowSamples<2>::batch(wanted); }
  static Report report(const Options& o, std::size_t shares, const auto& predict) {
    const std::size_t count = shared_by(16, shares);
    const auto make = [](Wanted wanted) {
      wanted.first += first_unseen;
      return batch(wanted);
    };
    return FlowSamples<2>::report(make({o.seed, 0, count}), predict(count, make));
  }
};

}  // namespace

int train_fno(World& world, const Options& o) { return train<FnoProblem>(world, o); }

}  // namespace fields
