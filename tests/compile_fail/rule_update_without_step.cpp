// SPDX-License-Identifier: Apache-2.0
// An update without the step's number among its parameters.
// expect: this update rule's update is not one for parameters of the model's element type P
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
#ifdef WEFT_FAIL
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double) {}
#else
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
#endif
};

void go(SingleDevice<models::Gpt>& model) {
  optim::Optimizer<Own> optimizer(model, {});
  optimizer.step();
}
