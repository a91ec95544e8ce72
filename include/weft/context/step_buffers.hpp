// SPDX-License-Identifier: Apache-2.0
#pragma once
// The making of a layer's step buffers (engine/step_buffer.hpp), and their update at the end of every training step:
//
//   auto load = make_step_buffer(context, "load", experts, experts, [](StepBuffer& buffer) { buffer.value = buffer.sum; });
//
// forward changes no buffer: it may run for an evaluation, or twice for one micro-batch. Its counts travel in its saved state,
// and backward adds them to `sum`. In a part of a model that has no backward forward adds them: counts_at_once.

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
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
      StepBuffer{(context / name).env.path, std::vector<double>(values), std::vector<double>(sums), update, rate});
  if (context.engine.buffers) context.engine.buffers->push_back(buffer);
  return buffer;
}

/// Whether a forward in training adds its counts itself, since no backward follows.
template <class Context>
bool counts_at_once(const Context& context) {
  if (!context.engine.records) return true;
  if (context.engine.calls) context.engine.calls->keeps_counts();
  return false;
}

/// Sums the buffers over all ranks with different tokens, in one message, and updates them.
template <class Context>
void renew(const Context& context, std::span<const std::shared_ptr<StepBuffer>> buffers) {
  if (buffers.empty()) return;
  std::vector<double> sums;
  for (const auto& buffer : buffers) sums.insert(sums.end(), buffer->sum.begin(), buffer->sum.end());
  Context::for_each_axis([&]<class A>(A axis) {
    if constexpr (!std::is_same_v<A, pp>)
      if (!sums.empty()) context.comm(axis).all_reduce(sums);
  });
  std::size_t at = 0;
  for (const auto& buffer : buffers) {
    for (double& sum : buffer->sum) sum = sums[at++];
    buffer->update(*buffer);
    std::fill(buffer->sum.begin(), buffer->sum.end(), 0.0);
  }
}

}  // namespace weft::detail
