// SPDX-License-Identifier: Apache-2.0
#include "fno.hpp"

#include "problem.hpp"
#include "training.hpp"

namespace fields {

namespace {

struct FnoProblem {
  using Laid = LaidStack<Fno<float>>;
  static constexpr Defaults defaults{.title = "Fourier neural operator", .unit = "fields", .steps = 300, .learning_rate = 5e-3};
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
