// SPDX-License-Identifier: Apache-2.0
// A rule that needs whole matrices and does nothing with them.
// expect: this update rule needs whole rows or matrices .*, so its update has three parts, and one of them is missing
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr optim::Needs needs = optim::Needs::matrix;
  static constexpr int buffers = 0;
  template <class P, class Exec>
  static void prepare(Device<Exec>&, optim::Slot&, const Options&, double, std::uint64_t, accumulate_t<P>*) {}
#ifndef WEFT_FAIL
  template <class A, class Exec>
  static void transform(Device<Exec>&, const optim::Matrix&, const Options&, A*) {}
#endif
  template <class P, class Exec>
  static void apply(Device<Exec>&, optim::Slot&, const Options&, double, std::uint64_t, const accumulate_t<P>*) {}
};

void go(SingleDevice<models::Gpt>& model) {
  optim::Optimizer<Own> optimizer(model, {});
  optimizer.step();
}
