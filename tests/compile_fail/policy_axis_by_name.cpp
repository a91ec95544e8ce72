// SPDX-License-Identifier: Apache-2.0
// An axis given as a string.
// expect: this policy's axis is no axis
// mention: OwnPolicy
#include <weft/weft.hpp>

using namespace weft;

struct OwnPolicy : PlainPolicy {
#ifdef WEFT_FAIL
  using axis = std::string;
#else
  using axis = tp;
#endif
  using hidden_placement = Invariant<tp>;
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
