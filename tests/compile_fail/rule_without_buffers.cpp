// SPDX-License-Identifier: Apache-2.0
// A rule that does not declare its number of buffers.
// expect: this update rule has no buffers.*write `static constexpr int buffers = 1;`
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr bool elementwise = true;
#ifndef WEFT_FAIL
  static constexpr int buffers = 0;
#endif
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
};

void go(SingleDevice<models::Gpt>& model) {
  optim::Optimizer<Own> optimizer(model, {});
  optimizer.step();
}
