// SPDX-License-Identifier: Apache-2.0
// A wrapper that does not declare its nesting level.
// expect: a wrapper around a wrapper that does not declare its place in the order of nesting
// mention: nesting_level
#include <weft/weft.hpp>

using namespace weft;

struct OwnPolicy : PlainPolicy {
  using axis = tp;
  using hidden_placement = Invariant<tp>;
  OwnPolicy(const Communicator&, DefaultDevice&, const ModelOptions&) {}
};
template <class M>
struct Own;
#ifndef WEFT_FAIL
template <class M>
inline constexpr int weft::nesting_level<Own<M>> = 18;
#endif
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
