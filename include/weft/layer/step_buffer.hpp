// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a layer keeps from step to step that no gradient changes: a few numbers, renewed at the end of every training step from
// sums over all of its tokens. A layer leaves its buffers with the model while it is built:
//
//   auto load = make_step_buffer(context, "load", experts, experts, [](StepBuffer& buffer) { buffer.value = buffer.sum; });
//
// forward changes no buffer: it may run for an evaluation, or twice for one micro-batch. What it counts travels in what it saves,
// and backward adds it to `sum`.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/layer/context.hpp>

namespace weft::detail {

/// Numbers on the host, alike on every rank that has the layer.
struct StepBuffer {
  std::string name;                       ///< global, as a parameter's
  std::vector<double> value;              ///< belongs in a checkpoint
  std::vector<double> sum;                ///< what this rank's tokens of the step add up to so far
  void (*update)(StepBuffer&) = nullptr;  ///< makes the new value; sum is then over the tokens of all ranks
  double rate = 0;                        ///< for `update`
};

/// A buffer of zeros that the model which is being built will renew.
template <class Context>
std::shared_ptr<StepBuffer> make_step_buffer(const Context& context, const std::string& name, std::size_t values,
                                             std::size_t sums, void (*update)(StepBuffer&), double rate = 0) {
  auto buffer = std::make_shared<StepBuffer>(
      StepBuffer{(context / name).env.path, std::vector<double>(values), std::vector<double>(sums), update, rate});
  if (context.engine.buffers) context.engine.buffers->push_back(buffer);
  return buffer;
}

/// Sums over every rank that had tokens of its own, one message for all buffers, and renews them.
template <class Context>
void renew(const Context& context, std::vector<std::shared_ptr<StepBuffer>>& buffers) {
  if (buffers.empty()) return;
  std::vector<double> sums;
  for (const auto& buffer : buffers) sums.insert(sums.end(), buffer->sum.begin(), buffer->sum.end());
  Context::for_each_axis([&]<class A>(A axis) {
    if constexpr (!std::is_same_v<A, pp>) context.comm(axis).all_reduce(sums);
  });
  std::size_t at = 0;
  for (const auto& buffer : buffers) {
    for (double& sum : buffer->sum) sum = sums[at++];
    buffer->update(*buffer);
    std::fill(buffer->sum.begin(), buffer->sum.end(), 0.0);
  }
}

}  // namespace weft::detail
