// SPDX-License-Identifier: Apache-2.0
// A rule whose options type has another name.
// expect: this update rule has no Options: write `struct Options
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  struct Settings {
    double learning_rate = 1e-3, clip = 0;
  };
#ifndef WEFT_FAIL
  using Options = Settings;
#endif
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Settings&, double, double, std::uint64_t) {}
};

void go(SingleDevice<models::Gpt>& model) {
  optim::Optimizer<Own> optimizer(model, {});
  optimizer.step();
}
