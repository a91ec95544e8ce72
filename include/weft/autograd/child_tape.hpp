// SPDX-License-Identifier: Apache-2.0
#pragma once
// A child's place in the tape of the Module that calls it: steps at its borders, so that backward also sees where the child
// begins and ends, and computes the child's weight gradients before it goes on to the one before.
//
//   return as_child<Child>(tape, [&] { return child.forward(x); });

#include <cstddef>

#include <weft/autograd/tape.hpp>
#include <weft/engine/child_calls.hpp>

namespace weft::detail {

/// In backward a child's border towards the values that entered it: its backward ends here.
template <class Context>
struct ChildBegins : TapeStep<Context> {
  explicit ChildBegins(ChildCalls& of) : calls(&of) {}
  void apply(Tape<Context>& tape) {
    tape.weights(tape.context());
    calls->end_backward(call);
  }
  ChildCalls* calls;
  std::size_t call = 0;
};
template <class Context>
struct ChildEnds : TapeStep<Context> {
  explicit ChildEnds(ChildCalls& of) : calls(&of) {}
  void apply(Tape<Context>&) { calls->begin_backward(); }
  ChildCalls* calls;
};

/// f(), the forward of a layer of type L. Only children of a model that is a Module are noted, not theirs.
template <class L, class Context, class F>
auto as_child(Tape<Context>& tape, const F& f) {
  ChildCalls* calls = tape.context().engine.calls;
  if (calls == nullptr || !calls->splits() || calls->inside() || calls->is_root(&layer_kind<L>)) return f();
  ChildBegins<Context>* begins = tape.records() ? &tape.template record<ChildBegins<Context>>(*calls) : nullptr;
  calls->begin();
  auto y = f();
  const std::size_t call = calls->end(tape.records());
  if (begins != nullptr) {
    begins->call = call;
    tape.template record<ChildEnds<Context>>(*calls);
  }
  return y;
}

}  // namespace weft::detail
