// SPDX-License-Identifier: Apache-2.0
// Wrappers and axes of users.
#include <weft/weft.hpp>

using namespace weft;

struct replica : UserDataAxis<0> {
  static constexpr std::string_view name = "replica";
};

// section: axes_of_one_number
// Sets of axes are bit masks, so two user-defined axes in one mesh need different numbers.
// expect: axes of your own have different numbers
#ifdef WEFT_FAIL
struct twin : UserAxis<0> {
  static constexpr std::string_view name = "twin";
};
Mesh<replica, twin> both(World& world) { return Mesh<replica, twin>(world); }
#else
struct twin : UserAxis<1> {
  static constexpr std::string_view name = "twin";
};
Mesh<replica, twin> both(World& world) { return Mesh<replica, twin>(world); }
#endif

// section: axis_number
// The number of an axis is a bit of a mask, in which weft's axes use some.
// expect: UserAxis's number must be from 0 to 21
#ifdef WEFT_FAIL
struct own : UserAxis<25> {
  static constexpr std::string_view name = "own";
};
#else
struct own : UserAxis<21> {
  static constexpr std::string_view name = "own";
};
#endif

// section: axis_of_a_taken_name
// Messages and rank orders refer to axes by name, so a user-defined axis must not have the name of one of weft's.
// expect: an axis of your own has the name of another axis
#ifdef WEFT_FAIL
struct own : UserAxis<0> {
  static constexpr std::string_view name = "tp";
};
Mesh<dp, own> both(World& world) { return Mesh<dp, own>(world); }
#else
struct own : UserAxis<0> {
  static constexpr std::string_view name = "own";
};
Mesh<dp, own> both(World& world) { return Mesh<dp, own>(world); }
#endif

// section: degree_of_a_weft_axis
// weft's axes have degrees of their names; Degrees::user is for others.
// expect: Degrees::user is for axes of a user's own
#ifdef WEFT_FAIL
Degrees degrees() { return {.user = {{tp{}, 2}}}; }
#else
Degrees degrees() { return {.tp = 2, .user = {{replica{}, 2}}}; }
#endif

// section: policy_of_a_weft_axis
// A user-defined policy is for a user-defined axis: weft's axes have wrappers, which do more than sum.
// expect: UserPolicy's first template parameter must be an axis of your own
#ifdef WEFT_FAIL
struct Own : UserPolicy<tp, Nesting::tensor> {};
#else
struct Own : UserPolicy<replica, Nesting::tensor> {};
#endif

// section: policy_of_another_hidden_placement
// The hidden placement must be on the policy's axis, and on no other.
// expect: is the placement of the hidden state on the policy's axis
#ifdef WEFT_FAIL
struct Own : UserPolicy<replica, Nesting::data, Invariant<tp>> {};
#else
struct Own : UserPolicy<replica, Nesting::data, Invariant<replica>> {};
#endif

// section: policy_with_arguments
// weft constructs the policy from the ranks of its axis, so it cannot have other arguments.
// expect: it needs a default constructor
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

// section: around_a_layer
// A user-defined wrapper must be around a model, like weft's.
// expect: a wrapper stands around another wrapper or a model
struct SumReplicas : UserPolicy<replica, Nesting::data> {
  void gradients_ready(Unit& unit) override {
    for (ParameterState* state : unit.parameters)
      if (state->take_unreduced(replica{})) state->gradient_span([&](auto gradient) { comm().all_reduce(gradient); });
  }
};

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<replica> mesh(world, {.user = {{replica{}, 2}}});
  UserWrapper<SumReplicas, RmsNorm> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<replica> mesh(world, {.user = {{replica{}, 2}}});
  UserWrapper<SumReplicas, models::Gpt> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: around_an_outer_one
// Gradients are summed over inner axes before they leave over outer ones, those of users too.
// expect: the wrapper inside this UserWrapper belongs outside it
struct SumReplicas : UserPolicy<replica, Nesting::tensor> {
  void gradients_ready(Unit& unit) override {
    for (ParameterState* state : unit.parameters)
      if (state->take_unreduced(replica{})) state->gradient_span([&](auto gradient) { comm().all_reduce(gradient); });
  }
};

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<replica, cp> mesh(world, {.user = {{replica{}, 2}}});
  UserWrapper<SumReplicas, ContextParallel<models::Gpt>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<replica, cp> mesh(world, {.user = {{replica{}, 2}}});
  ContextParallel<UserWrapper<SumReplicas, models::Gpt>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: too_far_inside
// A policy with Nesting::data must be outside TensorParallel.
// expect: the wrapper inside TensorParallel belongs outside it
struct SumReplicas : UserPolicy<replica, Nesting::data> {
  void gradients_ready(Unit& unit) override {
    for (ParameterState* state : unit.parameters)
      if (state->take_unreduced(replica{})) state->gradient_span([&](auto gradient) { comm().all_reduce(gradient); });
  }
};

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<replica, tp> mesh(world, {.user = {{replica{}, 2}}});
  TensorParallel<UserWrapper<SumReplicas, models::Gpt>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<replica, tp> mesh(world, {.user = {{replica{}, 2}}});
  UserWrapper<SumReplicas, TensorParallel<models::Gpt>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: without_policy
// UserWrapper takes the policy first, then the model.
// expect: UserWrapper's first template parameter must be a policy
struct SumReplicas : UserPolicy<replica, Nesting::data> {
  void gradients_ready(Unit& unit) override {
    for (ParameterState* state : unit.parameters)
      if (state->take_unreduced(replica{})) state->gradient_span([&](auto gradient) { comm().all_reduce(gradient); });
  }
};

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<replica> mesh(world, {.user = {{replica{}, 2}}});
  UserWrapper<replica, models::Gpt> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<replica> mesh(world, {.user = {{replica{}, 2}}});
  UserWrapper<SumReplicas, models::Gpt> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: wrappers_over_one_axis
// Two wrappers over one axis would sum twice.
// expect: two UserWrappers share one axis
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
