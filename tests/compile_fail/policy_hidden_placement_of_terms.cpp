// SPDX-License-Identifier: Apache-2.0
// A hidden state that would be a term of a sum between blocks.
// expect: this policy's hidden_placement is Replicated or Partial
// mention: OwnPolicy
#include <weft/weft.hpp>

using namespace weft;

struct OwnPolicy : PlainPolicy {
  using axis = tp;
#ifdef WEFT_FAIL
  using hidden_placement = Partial<tp>;
#else
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
