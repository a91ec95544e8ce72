// SPDX-License-Identifier: Apache-2.0
#pragma once
// What reproducible runs need beside plain ones (decision 14), for ReproducibleOption.

#include <memory>

#include <weft/core/list.hpp>
#include <weft/parallel/reproducible/option.hpp>
#include <weft/optim/exact_norm.hpp>
#include <weft/parallel/hook/communication_hook.hpp>
#include <weft/parallel/reproducible/gradient_trees.hpp>

namespace weft::detail {

template <class Exec>
class BucketTreeHooks final : public TreeHooks {
 public:
  explicit BucketTreeHooks(Device<Exec>& device) : device_(&device) {}
  void clear() override { hooks_.clear(); }
  hook::AnyHook* add(const ReductionTree& tree, std::size_t ranks) override {
    const ReductionTree& own = trees_.over(tree, ranks, [](std::size_t terms, std::size_t of) { return std::make_unique<ReductionTree>(terms, of); });
    if (own.in_rank_order()) return nullptr;
    hooks_.push_back(std::make_unique<TreeHook<Exec>>(*device_, own));
    return hooks_.back().get();
  }

 private:
  Device<Exec>* device_;
  List<std::unique_ptr<TreeHook<Exec>>> hooks_;
  ExpertTrees trees_;  // experts are summed over fewer ranks
};

template <class Device>
const ReproducibleParts& reproducible_parts() {
  using Exec = typename Device::execution_space;
  static constexpr ReproducibleParts parts{
      [](Device& device) -> std::unique_ptr<MicroBatchSums> { return std::make_unique<GradientTrees<Exec>>(device); },
      [](std::size_t terms, std::size_t ranks) { return std::make_unique<ReductionTree>(terms, ranks); },
      [](Device& device) -> std::unique_ptr<TreeHooks> { return std::make_unique<BucketTreeHooks<Exec>>(device); },
      [](Device& device, const Communicator& communicator, const List<GradientPart>& parts) { return optim::exact_norm(device, communicator, parts); }};
  return parts;
}

}  // namespace weft::detail
