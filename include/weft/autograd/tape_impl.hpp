// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for autograd/tape.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/autograd/tape.hpp>
#include <weft/core/inline.hpp>

namespace weft::detail {

WEFT_INLINE Tape::~Tape() {
  for (; steps_ != nullptr; steps_ = steps_->next) steps_->end(*steps_);
  for (; deferred_ != nullptr; deferred_ = deferred_->next) deferred_->end(*deferred_);
}

WEFT_INLINE void Tape::backward(const AnyContext& context) {
  context_ = context;
  while (steps_ != nullptr) {
    TapeStep& step = *steps_;
    steps_ = step.next;
    run(step);
  }
}

WEFT_INLINE void Tape::weights(const AnyContext& context) {
  context_ = context;
  while (deferred_ != nullptr) {
    TapeStep& step = *deferred_;
    deferred_ = step.next;
    run(step);
  }
  last_deferred_ = &deferred_;
}

// Work that the step defers belongs to the layer that made the step.
WEFT_INLINE void Tape::run(TapeStep& step) {
  layer_ = step.layer_path;
  try {
    step.run(step, *this);
  } catch (...) {
    add_path(layer_, Pass::backward);
    throw;
  }
}

WEFT_INLINE void EndTape::operator()(Tape* tape) const {
  TapeMemory& memory = tape->memory();
  tape->~Tape();
  memory.give(::new (static_cast<void*>(tape)) TapeMemory::Block{nullptr});
}

WEFT_INLINE TapePointer make_tape(const AnyContext& context, TapeMemory& memory, bool records) {
  static_assert(sizeof(Tape) <= TapeMemory::block_size);
  return TapePointer(::new (static_cast<void*>(memory.take())) Tape(context, memory, records));
}

}  // namespace weft::detail
