// SPDX-License-Identifier: Apache-2.0
// A policy that does not declare the placement of the hidden state on its axis.
// expect: this policy has no hidden_placement, the placement of the hidden state
// mention: OwnPolicy
#include <weft/weft.hpp>

using namespace weft;

struct OwnPolicy : PlainPolicy {
  using axis = tp;
#ifndef WEFT_FAIL
  using hidden_placement = Invariant<tp>;
#endif
  OwnPolicy(const Communicator&, DefaultDevice&, const ModelOptions&) {}
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
