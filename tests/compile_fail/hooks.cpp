// SPDX-License-Identifier: Apache-2.0
// Hooks of the engine.
#include <weft/weft.hpp>

using namespace weft;

// section: const
// A const event for one of Hooks that is not const.
// expect: these hooks have a function of the name of an event that takes or returns something else, or is const
// mention: Mine
struct Mine : detail::Hooks {
#ifdef WEFT_FAIL
  void gradients_ready(detail::Unit&) const {}
#else
  void gradients_ready(detail::Unit&) override {}
#endif
};

// section: misspelled
// An event that is spelled as no event is.
// expect: these hooks have no event, so they are never called .a misspelled one
// mention: Mine
struct Mine : detail::Hooks {
#ifdef WEFT_FAIL
  void gradient_ready(detail::Unit&) {}
#else
  void gradients_ready(detail::Unit&) override {}
#endif
};

// section: of_other_arguments
// An event that takes a parameter instead of a unit.
// expect: these hooks have a function of the name of an event that takes or returns something else
// mention: Mine
struct Mine : detail::Hooks {
#ifdef WEFT_FAIL
  void gradients_ready(ParameterState&) {}
#else
  void gradients_ready(detail::Unit&) override {}
#endif
};

// after each section
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
