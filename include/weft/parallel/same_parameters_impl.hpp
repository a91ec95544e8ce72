// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for parallel/same_parameters.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/parallel/same_parameters.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE void add_slots(std::vector<CopySlot>& slots, std::size_t i, const ParameterState& state,
                                     const CopyAxis& axis, std::size_t replicate) {
  constexpr unsigned of_experts = axis_bit<edp> | axis_bit<etp>;
  if (bool(axis.bit & of_experts) != bool(state.info().expert_data) || state.info().gradient_only) return;
  const bool kept = state.kept() != 0;
  const std::size_t size = std::size_t(axis.ranks.size()), rank = std::size_t(axis.ranks.rank());
  if (!(state.sharded() & axis.bit)) {
    slots.push_back({i, kept, false});
  } else if (state.storage().sharder() && !(state.info().sharded & axis.bit) && replicate > 1) {
    const KeptPart& part = state.storage().kept();
    for (std::size_t piece = 0; piece < part.cut.ranks; ++piece) slots.push_back({i, kept && part.place == piece, false});
  } else if (axis.bit == axis_bit<tp> && state.info().replicas > 1) {
    const std::size_t parts = size / std::size_t(state.info().replicas);
    for (std::size_t part = 0; part < parts; ++part)
      slots.push_back({i, kept && rank / std::size_t(state.info().replicas) == part, true});
  }
}

WEFT_COLD WEFT_INLINE void refuse_copies(const CopyAxis& axis, const std::string& name, bool mine, std::uint64_t hash,
                                         std::size_t differ, std::size_t compared) {
  const std::uint64_t here[] = {std::uint64_t(mine), hash};
  std::vector<std::uint64_t> all(2 * std::size_t(axis.ranks.size()));
  axis.ranks.all_gather(std::span<const std::uint64_t>(here), all);
  std::size_t first = 0;
  while (all[2 * first] == 0) ++first;
  std::size_t other = first + 1;
  while (all[2 * other] == 0 || all[2 * other + 1] == all[2 * first + 1]) ++other;
  char ours[20], theirs[20];
  std::snprintf(ours, sizeof ours, "%016llx", static_cast<unsigned long long>(all[2 * first + 1]));
  std::snprintf(theirs, sizeof theirs, "%016llx", static_cast<unsigned long long>(all[2 * other + 1]));
  const auto rank_text = [&](std::size_t rank, const char* bits) {
    return joined({axis.name, " rank ", rank, " (hash ", bits, ")"});
  };
  throw_error<Error>({"parameters differ: ", name, " on ", rank_text(other, theirs), " differs from that on ",
                      rank_text(first, ours), "; ", differ, " of ", compared, " parameters compared over ",
                      joined({axis.name, "(", axis.ranks.size(), ")"}),
                      " differ, which must be equal: a communication hook that leaves ranks different sums, a gradient that "
                      "misses its sum over ",
                      axis.name, ", or a write to parameters on some ranks only"});
}

WEFT_COLD WEFT_INLINE void require_equal_parameters(DefaultDevice& device, const AxesInForce& axes,
                                                    const std::vector<ParameterState*>& states, std::size_t replicate) {
  std::vector<CopyAxis> compared;
  const auto add = [&](const AxesInForce::One* axis) {
    if (axis != nullptr && axis->ranks.size() > 1) compared.push_back({axis->name, 1u << axis->id, axis->ranks});
  };
  axes.for_each([&](const AxesInForce::One& axis) {
    if (axis.id != pp::id) add(&axis);  // each stage has its own parameters
  });
  add(axes.one(edp{}));
  add(axes.one(etp{}));
  if (!compared.empty()) require_equal_copies(device, states, compared, replicate);
}

}  // namespace weft::detail
