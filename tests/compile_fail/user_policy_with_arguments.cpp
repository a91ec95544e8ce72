// SPDX-License-Identifier: Apache-2.0
// weft constructs the policy from the ranks of its axis, so it cannot have other arguments.
// expect: it needs a default constructor
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
struct Scaled : SumReplicas {
  explicit Scaled(double by) : factor(by) {}
  double factor;
};
double go(World& world, const Batch& batch) {
  Mesh<replica> mesh(world, {.user = {{replica{}, 2}}});
  UserWrapper<Scaled, models::Gpt> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
struct Scaled : SumReplicas {
  double factor = 1;
};
double go(World& world, const Batch& batch) {
  Mesh<replica> mesh(world, {.user = {{replica{}, 2}}});
  UserWrapper<Scaled, models::Gpt> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
