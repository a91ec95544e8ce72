// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers of a layer or a model that checkpoints hold in addition to its parameters: a counter, a running mean, the state of a
// schedule. One function declares them where the layer is built.
//
//   auto seen = kept_values(context, "seen", 1);   // in a constructor
//   (*seen)[0] += 1;                               // between steps

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <weft/context/step_buffers.hpp>

namespace weft {

/// `count` numbers, zero at first, under the layer's path. They are to be equal on all ranks that have the layer, and are changed
/// between steps: forward may run for an evaluation, or twice for one micro-batch.
template <class Context>
std::shared_ptr<std::vector<double>> kept_values(const Context& context, const std::string& name, std::size_t count) {
  const auto buffer = detail::make_step_buffer(context, name, count, 0, [](detail::StepBuffer&) {});
  return {buffer, &buffer->value};
}

}  // namespace weft
