// SPDX-License-Identifier: Apache-2.0
// Options without `clip`.
// expect: this update rule's Options have no clip.*write `double clip = 0;`
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
#ifdef WEFT_FAIL
  struct Options {
    double learning_rate = 1e-3;
  };
#else
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
#endif
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
};

void go(SingleDevice<models::Gpt>& model) {
  optim::Optimizer<Own> optimizer(model, {});
  optimizer.step();
}
