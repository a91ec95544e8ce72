// SPDX-License-Identifier: Apache-2.0
#pragma once
// What reproducible runs need beside plain ones (decision 14), for ReproducibleOption.

#include <memory>

#include <weft/nn/reproducible.hpp>
#include <weft/parallel/communication_hook.hpp>
#include <weft/parallel/gradient_trees.hpp>

namespace weft::detail {

template <class Device>
const ReproducibleParts& reproducible_parts() {
  using Exec = typename Device::execution_space;
  static constexpr ReproducibleParts parts{
      [](Device& device) -> std::unique_ptr<MicroBatchSums> { return std::make_unique<GradientTrees<Exec>>(device); },
      [](std::size_t terms, std::size_t ranks) { return std::make_unique<ReductionTree>(terms, ranks); },
      [](Device& device, const ReductionTree& tree) -> std::unique_ptr<hook::Erased> {
        return std::make_unique<TreeHook<Exec>>(device, tree);
      }};
  return parts;
}

}  // namespace weft::detail
