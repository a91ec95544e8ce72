// SPDX-License-Identifier: Apache-2.0
// Two wrappers over one axis would sum twice.
// expect: two UserWrappers share one axis
#include <weft/weft.hpp>

using namespace weft;

struct replica : UserDataAxis<0> {
  static constexpr std::string_view name = "replica";
};
struct SumReplicas : UserPolicy<replica, Nesting::data> {
  void gradients_ready(Unit& unit) override {
    for (ParameterState* state : unit.parameters)
      if (state->take_unreduced(replica{})) state->gradient_span([&](auto gradient) { comm().all_reduce(gradient); });
  }
};

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<replica> mesh(world, {.user = {{replica{}, 2}}});
  UserWrapper<SumReplicas, UserWrapper<SumReplicas, models::Gpt>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<replica> mesh(world, {.user = {{replica{}, 2}}});
  UserWrapper<SumReplicas, models::Gpt> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
