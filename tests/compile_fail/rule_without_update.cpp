// SPDX-License-Identifier: Apache-2.0
// A rule that calls its update otherwise.
// expect: this update rule has no update: write `template <class P, class Exec> static void update
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
  static void step(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
#else
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
#endif
};

void go(SingleDevice<models::Gpt>& model) {
  optim::Optimizer<Own> optimizer(model, {});
  optimizer.step();
}
