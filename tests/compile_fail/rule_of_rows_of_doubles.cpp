// SPDX-License-Identifier: Apache-2.0
// A part of a rule for one element type, and a model in another.
// expect: this update rule needs whole rows or matrices .*, so its update has three parts, and one of them is missing
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own : optim::MuonRule {
  static constexpr optim::Needs needs = optim::Needs::rows;
#ifdef WEFT_FAIL
  template <class A, class Exec>
  static void transform(Device<Exec>&, const optim::Matrix&, const Options&, double*) {}
#else
  template <class A, class Exec>
  static void transform(Device<Exec>&, const optim::Matrix&, const Options&, A*) {}
#endif
};

void go(SingleDevice<models::Gpt>& model) {
  optim::Optimizer<Own> optimizer(model, {});
  optimizer.step();
}
