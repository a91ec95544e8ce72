// SPDX-License-Identifier: Apache-2.0
// Hooks that are destroyed at the end of the call that requests them.
// expect: this policy's hooks.. returns no pointer to hooks
// mention: OwnPolicy
#include <weft/weft.hpp>

using namespace weft;

struct Mine : detail::Hooks {
  void gradients_ready(detail::Unit&) override {}
};
struct OwnPolicy : PlainPolicy {
  using axis = tp;
  using hidden_placement = Invariant<tp>;
  OwnPolicy(const Communicator&, DefaultDevice&, const ModelOptions&) {}
#ifdef WEFT_FAIL
  Mine hooks() { return {}; }
#else
  Mine* hooks() { return &mine; }
#endif
  Mine mine;
};
template <class M>
struct Own;
template <class M>
inline constexpr int weft::nesting_level<Own<M>> = 18;
template <class M>
struct Own : Wrapper<OwnPolicy, M> {
  using Wrapper<OwnPolicy, M>::Wrapper;
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<Own<models::Gpt>> model(mesh, models::GptConfig{});
  optim::AdamW optimizer(model);
  const double loss = model.train_step(batch);
  optimizer.step();
  return loss;
}
