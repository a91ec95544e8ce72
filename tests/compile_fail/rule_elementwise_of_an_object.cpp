// SPDX-License-Identifier: Apache-2.0
// `elementwise` as a member of each object of the rule: it would never be read.
// expect: this update rule's elementwise is not a constant
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
#ifdef WEFT_FAIL
  bool elementwise = true;
#else
  static constexpr bool elementwise = true;
#endif
  static constexpr int buffers = 0;
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
};

void go(SingleDevice<models::Gpt>& model) {
  optim::Optimizer<Own> optimizer(model, {});
  optimizer.step();
}
