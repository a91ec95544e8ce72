// SPDX-License-Identifier: Apache-2.0
#pragma once
// The accumulator of reproducible runs (decision 14), which ReproducibleOption makes: trees over the micro-batches of a rank
// (gradient_trees.hpp), the same trees over data ranks, and a norm without rounding.

#include <memory>
#include <vector>

#include <weft/optim/exact_norm.hpp>
#include <weft/parallel/hook/communication_hook.hpp>
#include <weft/parallel/reproducible/gradient_trees.hpp>
#include <weft/parallel/reproducible/option.hpp>

namespace weft::detail {

template <class Exec>
class ReproducibleAccumulator final : public GradientTrees<Exec> {
  using Base = GradientTrees<Exec>;

 public:
  explicit ReproducibleAccumulator(Device<Exec>& device) : Base(device) {}

  void begin(const BatchShare& batch, typename Base::AllHooks hooks, std::size_t data_rank, std::size_t data_ranks) override {
    hooks_.clear();
    Base::begin(batch, hooks, data_rank, data_ranks);
  }
  hook::AnyHook* bucket_hook(std::size_t ranks, hook::AnyHook*) override {
    const ReductionTree& own = trees_.over(this->tree(), ranks);
    if (own.in_rank_order()) return nullptr;
    hooks_.push_back(std::make_unique<TreeHook<Exec>>(this->device(), own));
    return hooks_.back().get();
  }
  const ReductionTree* order_over(std::size_t ranks, bool copies) override {
    const ReductionTree& own = trees_.over(this->tree(), ranks);
    return !own.in_rank_order() || copies ? &own : nullptr;
  }
  std::vector<double> loss_terms(std::vector<double> losses, std::size_t data_rank, std::size_t data_ranks) const override {
    std::vector<double> all(losses.size() * data_ranks);  // of all micro-batches of the step
    for (std::size_t i = 0; i < losses.size(); ++i) all[losses.size() * data_rank + i] = losses[i];
    return all;
  }
  double norm(const Communicator& communicator, const std::vector<GradientPart>& parts, const SquaredNorm&) override {
    return optim::exact_norm(this->device(), communicator, parts);
  }

 private:
  std::vector<std::unique_ptr<TreeHook<Exec>>> hooks_;
  ExpertTrees trees_;  // experts are summed over fewer ranks
};

template <class Device>
std::shared_ptr<GradientAccumulator> reproducible_accumulator(Device& device) {
  return std::make_shared<ReproducibleAccumulator<typename Device::execution_space>>(device);
}

}  // namespace weft::detail
