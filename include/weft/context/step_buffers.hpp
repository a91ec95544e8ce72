// SPDX-License-Identifier: Apache-2.0
#pragma once
// The making of a layer's step buffers (engine/step_buffer.hpp), which every training step updates at its end:
//
//   auto load = make_step_buffer(context, "load", experts, experts, [](StepBuffer& buffer) { buffer.value = buffer.sum; });
//
// forward changes no buffer: it may run for an evaluation, or twice for one micro-batch. Its counts travel in its saved state,
// and backward adds them to `sum`. In a part of a model that has no backward forward adds them: counts_at_once.

#include <memory>
#include <string>
#include <vector>

#include <weft/context/context.hpp>
#include <weft/engine/child_calls.hpp>
#include <weft/engine/step_buffer.hpp>

namespace weft::detail {

/// Makes a buffer of zeros and registers it with the model under construction.
template <class Context>
std::shared_ptr<StepBuffer> make_step_buffer(const Context& context, const std::string& name, std::size_t values,
                                             std::size_t sums, void (*update)(StepBuffer&), double rate = 0) {
  auto buffer = std::make_shared<StepBuffer>(
      StepBuffer{construction_of(context / name).path, std::vector<double>(values), std::vector<double>(sums), update, rate});
  if (auto* const buffers = construction_of(context).buffers) buffers->push_back(buffer);
  return buffer;
}

/// Whether a forward in training adds its counts itself, since no backward follows.
template <class Context>
bool counts_at_once(const Context& context) {
  if (!context.engine.records) return true;
  if (context.engine.calls) context.engine.calls->keeps_counts();
  return false;
}

}  // namespace weft::detail
