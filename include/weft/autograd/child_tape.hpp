// SPDX-License-Identifier: Apache-2.0
#pragma once
// A child's place in the tape of the Module that calls it: steps at its borders, so that backward also sees where the child
// begins and ends, and computes the child's weight gradients before it goes on to the one before.
//
//   ChildCall call(tape, &layer_kind<Child>);
//   auto y = child.forward(x);
//   call.end();

#include <cstddef>

#include <weft/autograd/tape.hpp>
#include <weft/engine/child_calls.hpp>

namespace weft::detail {

/// In backward a child's border towards the values that entered it: its backward ends here.
struct ChildBegins : TapeStep {
  explicit ChildBegins(ChildCalls& of) : calls(&of) {}
  void apply(Tape& tape) {
    tape.weights(tape.context());
    calls->end_backward(call);
  }
  ChildCalls* calls;
  std::size_t call = 0;
};
struct ChildEnds : TapeStep {
  explicit ChildEnds(ChildCalls& of) : calls(&of) {}
  void apply(Tape&) { calls->begin_backward(); }
  ChildCalls* calls;
};

/// The call of a layer in a Module's forward. Only children of a model that is a Module are noted, not theirs.
class ChildCall {
 public:
  /// `kind`: layer_kind of the layer's type.
  ChildCall(Tape& tape, const void* kind) : tape_(&tape) {
    ChildCalls* const calls = tape.context().engine().calls;
    if (calls == nullptr || !calls->splits() || calls->inside() || calls->is_root(kind)) return;
    calls_ = calls;
    if (tape.records()) begins_ = &tape.record<ChildBegins>(*calls);
    calls->begin();
  }
  /// The layer's forward has ended, and its backward is recorded.
  void end() {
    if (calls_ == nullptr) return;
    const std::size_t call = calls_->end(tape_->records());
    if (begins_ == nullptr) return;
    begins_->call = call;
    tape_->record<ChildEnds>(*calls_);
  }

 private:
  Tape* tape_;
  ChildCalls* calls_ = nullptr;  // null: the call is not noted
  ChildBegins* begins_ = nullptr;
};

}  // namespace weft::detail
