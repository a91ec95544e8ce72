// SPDX-License-Identifier: Apache-2.0
// A number of buffers that each object of the rule would have.
// expect: this update rule's buffers is not a constant
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr bool elementwise = true;
#ifdef WEFT_FAIL
  int buffers = 0;
#else
  static constexpr int buffers = 0;
#endif
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
};

void go(SingleDevice<models::Gpt>& model) {
  optim::Optimizer<Own> optimizer(model, {});
  optimizer.step();
}
