// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shapes of the tensors that go between the stages of a pipeline, for a rehearsal, in which no other stage announces them.
//
//   shapes.add({sequences, length}, {stage, micro, true}, hidden.shape());
//   shapes.of({sequences, length}, message)

#include <map>
#include <tuple>

#include <weft/core/error.hpp>
#include <weft/layer/batch_share.hpp>
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
  bool knows(const MicroBatch& size) const {
    const auto first = shapes_.lower_bound({size.sequences, size.length, 0, 0});
    return first != shapes_.end() && std::get<0>(first->first) == size.sequences && std::get<1>(first->first) == size.length;
  }
  void add(const MicroBatch& size, const StageMessage& message, const Shape& shape) {
    shapes_.insert_or_assign(key(size, message), shape);
  }
  /// A gradient has the shape of the activation that went the other way.
  const Shape& of(const MicroBatch& size, const StageMessage& message) const {
    const auto found = shapes_.find(key(size, message));
    if (found == shapes_.end())
      throw_error<Error>({"rehearsal: the shape of what enters stage ", message.stage, " is not known"});
    return found->second;
  }

 private:
  using Key = std::tuple<std::size_t, std::size_t, int, int>;  // sequences, length, the stage after the boundary, part
  static Key key(const MicroBatch& size, const StageMessage& message) {
    return {size.sequences, size.length, message.stage + (message.forward ? 0 : 1), message.part};
  }
  std::map<Key, Shape> shapes_;
};

}  // namespace weft::detail
