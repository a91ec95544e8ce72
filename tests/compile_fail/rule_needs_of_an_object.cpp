// SPDX-License-Identifier: Apache-2.0
// `needs` as a member of each object of the rule: it would never be read.
// expect: this update rule's needs is not a constant of type Needs
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own : optim::MuonRule {
#ifdef WEFT_FAIL
  optim::Needs needs = optim::Needs::matrix;
#else
  static constexpr optim::Needs needs = optim::Needs::matrix;
#endif
};

void go(SingleDevice<models::Gpt>& model) {
  optim::Optimizer<Own> optimizer(model, {});
  optimizer.step();
}
