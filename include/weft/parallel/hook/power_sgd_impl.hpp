// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for parallel/hook/power_sgd.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/parallel/hook/power_sgd.hpp>

namespace weft::hook {

WEFT_INLINE PowerSgd::State& PowerSgd::state_of(const Bucket& bucket) {
  State& state = states_[bucket.index];
  if (!state.matrices.empty() || !state.whole.empty()) return state;
  const std::size_t r = std::size_t(options_.rank);
  for (const weft::detail::FlatMember& member : bucket.members) {
    const Shape& shape = member.state->local();
    const std::size_t rows = shape.rank() > 1 ? shape[0] : 1, columns = rows == 0 ? 0 : shape.size() / rows;
    if (shape.rank() < 2 || r * (rows + columns) >= rows * columns) continue;
    state.matrices.push_back({.first = member.first,
                              .rows = rows,
                              .columns = columns,
                              .left = state.sent,
                              .right = state.right_size,
                              .error = state.error_size,
                              .site = site_of(member.state->name())});
    state.sent += rows * r;
    state.right_size += columns * r;
    state.error_size += rows * columns;
  }
  for (const weft::detail::FlatMember& member : bucket.members) {
    if (std::any_of(state.matrices.begin(), state.matrices.end(),
                    [&](const Matrix& matrix) { return matrix.first == member.first; }))
      continue;
    state.whole.push_back({member.first, member.state->size(), state.sent});
    state.sent += member.state->size();
  }
  return state;
}

WEFT_INLINE void PowerSgd::reject(std::vector<double>& x, const std::vector<std::vector<double>>& directions) {
  for (const auto& direction : directions) {
    double along = 0;
    for (std::size_t i = 0; i < x.size(); ++i) along += x[i] * direction[i];
    for (std::size_t i = 0; i < x.size(); ++i) x[i] -= along * direction[i];
  }
}

}  // namespace weft::hook
