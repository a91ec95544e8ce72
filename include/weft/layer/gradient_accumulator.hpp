// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interface by which a step's gradients are added up: over micro-batches on a rank, over the uses of a shared parameter, and
// over data ranks. A model has one accumulator, and its executor, stages, wrappers and optimizer ask it. PlainAccumulator
// (layer/plain_accumulator.hpp) adds in the order in which gradients come; ReproducibleAccumulator
// (parallel/reproducible/parts.hpp) in one that no layout changes.
//
//   accumulator.begin(batch, hooks, data_rank, data_ranks);
//   accumulator.open(unit, micro);                // layers add to the unit's gradients
//   accumulator.close(unit, micro, hooks);
//   accumulator.ready(owned, hooks, last);        // all that this rank's layers add is in: on to the data ranks

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/text.hpp>
#include <weft/layer/batch.hpp>
#include <weft/layer/hook/bucket.hpp>
#include <weft/layer/hooks.hpp>
#include <weft/layer/parameter_state.hpp>
#include <weft/layer/reduction_tree.hpp>

namespace weft {

namespace detail {

/// A parameter that several units use, where their gradients are added at the end of a step.
struct Tie {
  ParameterState* state;
  std::shared_ptr<const Communicator> holders;  ///< the ranks of the pipeline that have a use of it; null: this rank has all
  std::vector<int> uses;                        ///< of each use, in the order of the model, the rank of `holders` that has it
};

/// How an optimizer squares its gradients: the sum over the squares of a part goes to `*out` on the device.
struct SquaredNorm {
  void* optimizer;
  void (*call)(void* optimizer, const GradientPart& part, double* out);
};

class GradientAccumulator {
 public:
  using AllHooks = std::span<Hooks* const>;
  virtual ~GradientAccumulator() = default;

  // ---- a model

  /// Whether each gradient of a micro-batch, of a use of a parameter and of a data rank is a term of its own, added at a place of
  /// its own.
  virtual bool separates_terms() const = 0;
  /// The model is complete; `units`: this rank's, in the order of the model.
  virtual void find_uses(std::span<Unit* const> units, AllHooks hooks, std::size_t data_ranks) = 0;
  /// Gradients without a parameter, for uses after the first one where these are apart: a unit of its own each, since how data
  /// ranks share one must not depend on what else is here.
  virtual std::span<Unit> second_uses() = 0;

  // ---- a step

  /// A step of this batch, data rank `data_rank`'s part of the step's micro-batches. Throws UsageError if it must be another
  /// part.
  virtual void begin(const Batch& batch, AllHooks hooks, std::size_t data_rank, std::size_t data_ranks) = 0;
  /// The layers of `unit` are about to add one micro-batch's gradients.
  virtual void open(const Unit& unit, std::size_t micro) = 0;
  /// They have done a first part of it, and will go on.
  virtual void leave(const Unit& unit, std::size_t micro) = 0;
  /// They have done all of it.
  virtual void close(Unit& unit, std::size_t micro, AllHooks hooks) = 0;
  /// A micro-batch has passed the unit, `last`: the step's last one. Wrappers sum what they are to sum by now.
  virtual void ready(Unit& owned, AllHooks hooks, bool last) = 0;
  /// The end of a step: `ties` are added, each a unit in `tied`, and all sums are in place.
  virtual void finish(std::span<const Tie> ties, std::span<Unit> tied, AllHooks hooks) = 0;

  // ---- sums over data ranks

  /// How DataParallel sums a bucket over `ranks` ranks in this step; `own`: how it does by itself, null for a plain all-reduce.
  virtual hook::AnyHook* bucket_hook(std::size_t ranks, hook::AnyHook* own) = 0;
  /// The order in which `ranks` ranks add shards in this step; null: their own. `copies`: some of them hold copies.
  virtual const ReductionTree* order_over(std::size_t ranks, bool copies) = 0;
  /// The terms of a step's loss at their places, for a sum over all ranks and then over the terms as a tree.
  virtual std::vector<double> loss_terms(std::vector<double> losses, std::size_t data_rank, std::size_t data_ranks) const = 0;
  /// The 2-norm over the parts of all ranks. Collective.
  virtual double norm(const Communicator& communicator, const std::vector<GradientPart>& parts, const SquaredNorm& square) = 0;

 protected:
  // The wrappers inside of data parallelism, or those that sum over data ranks; innermost first.
  static void notify(Unit& unit, AllHooks hooks, bool data) {
    for (std::size_t i = hooks.size(); i-- > 0;)
      if (hooks[i]->sums_data() == data) hooks[i]->gradients_ready(unit);
  }
  // A gradient that some holders of a parameter have is one of all.
  WEFT_COLD static void agree_on_touched(std::span<const Tie> ties) {
    for (const Tie& tie : ties) {
      if (!tie.holders) continue;
      std::int32_t touched = tie.state->gradients().touched();
      tie.holders->all_reduce(std::span(&touched, 1), Reduction::max);
      tie.state->gradients().set_touched(touched != 0);
    }
  }
};

}  // namespace detail

}  // namespace weft

#ifdef WEFT_COMPILED
extern template class std::vector<weft::detail::Tie>;
#endif
