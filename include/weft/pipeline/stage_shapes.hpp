// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shapes of the tensors that go between the stages of a pipeline, for a rehearsal, in which no other stage announces them.
//
//   shapes.add({sequences, length}, {stage, micro, true}, hidden.shape());
//   shapes.of({sequences, length}, message)

#include <cstddef>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// The identity of a tensor: the stage and the micro-batch that need it, whether it is an activation or a gradient, and its place
/// among the tensors that go from one stage to the next.
struct StageMessage {
  int stage = 0, micro = 0;
  bool forward = true;
  int part = 0;
  friend bool operator==(const StageMessage&, const StageMessage&) = default;
};

class StageShapes {
 public:
  WEFT_COLD bool knows(const MicroBatch& size) const {
    for (const Known& known : known_)
      if (known.sequences == size.sequences && known.length == size.length) return true;
    return false;
  }
  WEFT_COLD void add(const MicroBatch& size, const StageMessage& message, const Shape& shape) {
    if (find(size, message) == nullptr) known_.push_back({size.sequences, size.length, boundary(message), message.part, shape});
  }
  /// A gradient has the shape of the activation that went the other way.
  WEFT_COLD const Shape& of(const MicroBatch& size, const StageMessage& message) const {
    if (const Shape* const known = find(size, message); known != nullptr) return *known;
    throw_error<Error>({"rehearsal: the shape of what enters stage ", message.stage, " is not known"});
  }

 private:
  struct Known {
    std::size_t sequences, length;
    int boundary, part;
    Shape shape;
  };
  // The stage after the boundary that the message crosses.
  static int boundary(const StageMessage& message) { return message.stage + (message.forward ? 0 : 1); }
  const Shape* find(const MicroBatch& size, const StageMessage& message) const {
    for (const Known& known : known_)
      if (known.boundary == boundary(message) && known.part == message.part && known.sequences == size.sequences &&
          known.length == size.length)
        return &known.shape;
    return nullptr;
  }
  std::vector<Known> known_;  // a few for each stage
};

}  // namespace weft::detail
