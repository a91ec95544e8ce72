// SPDX-License-Identifier: Apache-2.0
// An event that takes a parameter instead of a unit.
// expect: these hooks have a function of the name of an event that takes or returns something else
// mention: Mine
#include <weft/weft.hpp>

using namespace weft;

struct Mine : detail::Hooks {
#ifdef WEFT_FAIL
  void gradients_ready(ParameterState&) {}
#else
  void gradients_ready(detail::Unit&) override {}
#endif
};
struct OwnPolicy : PlainPolicy {
  using axis = tp;
  using hidden_placement = Invariant<tp>;
  OwnPolicy(const Communicator&, DefaultDevice&, const ModelOptions&) {}
  Mine* hooks() { return &mine; }
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
