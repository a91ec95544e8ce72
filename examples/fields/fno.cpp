// SPDX-License-Identifier: Apache-2.0
#include "fno.hpp"

#include "problem.hpp"
#include "training.hpp"

namespace fields {

namespace {

struct FnoProblem {
  using Model = Fno<float>;
  static constexpr Defaults defaults{.title = "Fourier neural operator", .unit = "fields", .steps = 300, .learning_rate = 5e-3};
  static Flow batch(std::uint64_t seed, std::uint64_t first, std::size_t count, std::size_t) {
    return FlowSamples<2>::batch(seed, first, count);
  }
  static Report report(const Options& o, std::size_t shares, const auto& predict) {
    const std::size_t count = shared_by(16, shares);
    const auto make = [&](std::size_t first, std::size_t samples) {
      return FlowSamples<2>::batch(o.seed, first_unseen + first, samples);
    };
    return FlowSamples<2>::report(make(0, count), predict(count, make));
  }
};

}  // namespace

int train_fno(World& world, const Options& o) { return train<FnoProblem>(world, o); }

}  // namespace fields
