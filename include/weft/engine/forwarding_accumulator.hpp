// SPDX-License-Identifier: Apache-2.0
#pragma once
// An accumulator that passes every call to another one: the base of those that only look at the gradients on their way
// (parallel/nonfinite_trace.hpp, pipeline/gradient_bits.hpp).
//
//   class Counts : public ForwardingAccumulator { void open(const Unit& unit, std::size_t micro) override { ... } };

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <weft/engine/gradient_accumulator.hpp>

namespace weft::detail {

class ForwardingAccumulator : public GradientAccumulator {
 public:
  explicit ForwardingAccumulator(std::shared_ptr<GradientAccumulator> of) : of_(std::move(of)) {}

  bool separates_terms() const override { return of_->separates_terms(); }
  void find_uses(std::span<Unit* const> units, AllHooks hooks, std::size_t data_ranks) override {
    of_->find_uses(units, hooks, data_ranks);
  }
  std::span<Unit> second_uses() override { return of_->second_uses(); }
  void begin(const BatchShare& batch, AllHooks hooks, std::size_t data_rank, std::size_t data_ranks) override {
    of_->begin(batch, hooks, data_rank, data_ranks);
  }
  void open(const Unit& unit, std::size_t micro) override { of_->open(unit, micro); }
  void leave(const Unit& unit, std::size_t micro) override { of_->leave(unit, micro); }
  void close(Unit& unit, std::size_t micro, AllHooks hooks) override { of_->close(unit, micro, hooks); }
  void ready(Unit& owned, AllHooks hooks, bool last) override { of_->ready(owned, hooks, last); }
  void finish(std::span<const Tie> ties, std::span<Unit> tied, AllHooks hooks) override { of_->finish(ties, tied, hooks); }
  hook::AnyHook* bucket_hook(std::size_t ranks, hook::AnyHook* own) override { return of_->bucket_hook(ranks, own); }
  const ReductionTree* order_over(std::size_t ranks, bool copies) override { return of_->order_over(ranks, copies); }
  std::vector<double> loss_terms(std::vector<double> losses, std::size_t data_rank, std::size_t data_ranks) const override {
    return of_->loss_terms(std::move(losses), data_rank, data_ranks);
  }
  double norm(const Communicator& communicator, const std::vector<GradientPart>& parts, const SquaredNorm& square) override {
    return of_->norm(communicator, parts, square);
  }
  bool squares_on_device(const Communicator& communicator, std::vector<GradientPart> parts, const SquaredNorm& square,
                         double* sum) override {
    return of_->squares_on_device(communicator, std::move(parts), square, sum);
  }

 protected:
  GradientAccumulator& inner() const { return *of_; }

 private:
  std::shared_ptr<GradientAccumulator> of_;
};

}  // namespace weft::detail
