// SPDX-License-Identifier: Apache-2.0
#pragma once
// The byte counters of an arena, in total and by category.
//
//   const MemoryUse& use = device.arena().use();
//   use.of(MemoryCategory::gradients)   // current bytes

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <weft/core/standard.hpp>

namespace weft {

/// The purpose of a block of memory. Gradients are only those that stay allocated between steps. All memory that is allocated and
/// freed within a step counts as activations.
enum class MemoryCategory : std::uint8_t { activations, parameters, gradients, optimizer_state, other };

namespace detail {
inline constexpr std::size_t memory_categories = 5;
}

constexpr std::string_view name_of(MemoryCategory category) {
  constexpr std::string_view names[detail::memory_categories] = {"activations", "parameters", "gradients", "optimizer state",
                                                                 "other"};
  return names[std::size_t(category)];
}

/// Bytes of a device's arena, in all and by category.
struct MemoryUse {
  std::size_t current = 0;                                              ///< currently in use
  std::size_t peak = 0;                                                 ///< largest value of `current`
  std::size_t reserved = 0;                                             ///< allocated from the system
  std::array<std::size_t, detail::memory_categories> by_category = {};  ///< of `current`
  std::size_t of(MemoryCategory category) const { return by_category[std::size_t(category)]; }
};

}  // namespace weft
