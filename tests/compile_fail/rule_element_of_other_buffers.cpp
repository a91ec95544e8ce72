// SPDX-License-Identifier: Apache-2.0
// The arithmetic of an element with a buffer, in a rule without buffers.
// expect: this update rule's element is not the arithmetic of an update in the model's accumulate type A
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

template <class A>
struct Descent {
#ifdef WEFT_FAIL
  static constexpr int buffers = 1;
#else
  static constexpr int buffers = 0;
#endif
  A rate;
  template <class V>
  KOKKOS_FUNCTION void operator()(V gradient, V& value, V*) const {
    value = value - V(rate) * gradient;
  }
  bool operator==(const Descent&) const = default;
};

struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
  template <class A>
  static Descent<A> element(const ParameterState&, const Options&, double learning_rate, std::uint64_t) {
    return {A(learning_rate)};
  }
};

void go(SingleDevice<models::Gpt>& model) {
  optim::Optimizer<Own> optimizer(model, {});
  optimizer.step();
}
