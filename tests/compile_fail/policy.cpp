// SPDX-License-Identifier: Apache-2.0
// Policies of wrappers.
#include <weft/weft.hpp>

using namespace weft;

// section: axis_by_name
// An axis given as a string.
// expect: this policy's axis is no axis
// mention: OwnPolicy
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

// section: hidden_placement_of_an_axis
// An axis in the place of a placement.
// expect: this policy's hidden_placement is no placement
// mention: OwnPolicy
struct OwnPolicy : PlainPolicy {
  using axis = tp;
#ifdef WEFT_FAIL
  using hidden_placement = tp;
#else
  using hidden_placement = Invariant<tp>;
#endif
  OwnPolicy(const Communicator&, DefaultDevice&, const ModelOptions&) {}
};

template <class M>
struct Own;

template <class M>
inline constexpr int weft::nesting_level<Own<M>> = 18;

// section: hidden_placement_of_terms
// A hidden state that would be a term of a sum between blocks.
// expect: this policy's hidden_placement is Replicated or Partial
// mention: OwnPolicy
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

// section: hidden_placement_on_another_axis
// A placement on another axis than the one that is bound.
// expect: this policy's hidden_placement is a placement on another axis
// mention: OwnPolicy
struct OwnPolicy : PlainPolicy {
  using axis = tp;
#ifdef WEFT_FAIL
  using hidden_placement = Invariant<cp>;
#else
  using hidden_placement = Invariant<tp>;
#endif
  OwnPolicy(const Communicator&, DefaultDevice&, const ModelOptions&) {}
};

template <class M>
struct Own;

template <class M>
inline constexpr int weft::nesting_level<Own<M>> = 18;

// section: hooks_by_value
// Hooks that are destroyed at the end of the call that requests them.
// expect: this policy's hooks.. returns no pointer to hooks
// mention: OwnPolicy
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

// section: hooks_of_no_class
// Hooks that are not derived from Hooks.
// expect: this policy's hooks.. returns no pointer to hooks
// mention: OwnPolicy
struct Mine
#ifndef WEFT_FAIL
    : detail::Hooks
#endif

{
  void gradients_ready(detail::Unit&) {}
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

// section: not_a_plain_one
// A policy that is not derived from PlainPolicy.
// expect: this policy lacks shards_parameters, adjust.options. or schedule.options.*derive it from PlainPolicy
// mention: OwnPolicy
struct OwnPolicy
#ifndef WEFT_FAIL
    : PlainPolicy
#endif

{
  using axis = tp;
  using hidden_placement = Invariant<tp>;
  OwnPolicy(const Communicator&, DefaultDevice&, const ModelOptions&) {}
};

template <class M>
struct Own;

template <class M>
inline constexpr int weft::nesting_level<Own<M>> = 18;

// section: without_axis
// A policy that binds no axis.
// expect: this policy has no axis, so its wrapper binds none: write `using axis = tp;`
// mention: OwnPolicy
struct OwnPolicy : PlainPolicy {
#ifndef WEFT_FAIL
  using axis = tp;
#endif
  using hidden_placement = Invariant<tp>;
  OwnPolicy(const Communicator&, DefaultDevice&, const ModelOptions&) {}
};

template <class M>
struct Own;

template <class M>
inline constexpr int weft::nesting_level<Own<M>> = 18;

// section: without_constructor
// A policy that is made of nothing.
// expect: this policy cannot be made on a rank: write the constructor
// mention: OwnPolicy
struct OwnPolicy : PlainPolicy {
  using axis = tp;
  using hidden_placement = Invariant<tp>;
#ifndef WEFT_FAIL
  OwnPolicy(const Communicator&, DefaultDevice&, const ModelOptions&) {}
#endif
};

template <class M>
struct Own;

template <class M>
inline constexpr int weft::nesting_level<Own<M>> = 18;

// section: without_hidden_placement
// A policy that does not declare the placement of the hidden state on its axis.
// expect: this policy has no hidden_placement, the placement of the hidden state
// mention: OwnPolicy
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

// section: without_level
// A wrapper that does not declare its nesting level.
// expect: a wrapper around a wrapper that does not declare its place in the order of nesting
// mention: nesting_level
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

// after each section
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
