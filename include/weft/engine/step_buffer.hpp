// SPDX-License-Identifier: Apache-2.0
#pragma once
// A layer's state from step to step that is not trained by gradients: a few numbers, updated at the end of every training step
// from sums over all of its tokens. A layer registers its buffers with the model when it is built (context/step_buffers.hpp).
//
//   buffer->update(*buffer);   // after `sum` was added over all ranks

#include <string>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft::detail {

/// Numbers on the host, equal on every rank that has the layer.
struct StepBuffer {
  std::string name;                       ///< global, as a parameter's
  std::vector<double> value;              ///< belongs in a checkpoint
  std::vector<double> sum;                ///< the sums over this rank's tokens of the step so far
  void (*update)(StepBuffer&) = nullptr;  ///< computes the new value; `sum` is then over the tokens of all ranks
  double rate = 0;                        ///< for `update`
};

}  // namespace weft::detail
