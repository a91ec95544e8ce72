// SPDX-License-Identifier: Apache-2.0
// A check that takes the options of another rule: it would never be called.
// expect: this update rule's check cannot be called with its Options
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
  static void check(const optim::SgdOptions&) {}
#else
  static void check(const Options&) {}
#endif
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
};

void go(SingleDevice<models::Gpt>& model) {
  optim::Optimizer<Own> optimizer(model, {});
  optimizer.step();
}
