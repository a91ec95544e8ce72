// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interface through which a step's gradients are added: over micro-batches on a rank, over the uses of a shared parameter,
// and over data ranks. A model has one accumulator, which its executor, stages, wrappers and optimizer call. PlainAccumulator
// (engine/plain_accumulator.hpp) adds gradients in the order in which they arrive; ReproducibleAccumulator
// (parallel/reproducible/parts.hpp) in an order that does not depend on the layout.
//
//   accumulator.begin(batch, hooks, data_rank, data_ranks);
//   accumulator.open(unit, micro);                // layers add to the unit's gradients
//   accumulator.close(unit, micro, hooks);
//   accumulator.ready(owned, hooks, last);        // this rank's layers have added everything: on to the data ranks

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/comm/reduction_tree.hpp>
#include <weft/core/text.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/engine/hook/bucket.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/engine/parameter_state.hpp>

namespace weft {

namespace detail {

/// A parameter that several units use and whose gradients are added at the end of a step.
struct Tie {
  ParameterState* state;
  std::shared_ptr<const Communicator> holders;  ///< the pipeline ranks that use it; null: only this rank does
  std::vector<int> uses;                        ///< the rank in `holders` of each use, in the order of the model
};

/// An optimizer's function for squared norms: it writes the sum of the squares of a part to `*out` on the device.
struct SquaredNorm {
  void* optimizer;
  void (*call)(void* optimizer, const GradientPart& part, double* out);
  /// The same for all parts at once, out[i] that of the i-th; null, or false if nothing was done: each by `call`.
  bool (*all)(void* optimizer, std::span<const GradientPart> parts, double* out) = nullptr;
};

class GradientAccumulator {
 public:
  using AllHooks = std::span<Hooks* const>;
  virtual ~GradientAccumulator() = default;

  // ---- a model

  /// Whether each gradient (of a micro-batch, of a use of a parameter, of a data rank) is a separate term, added at a fixed
  /// place.
  virtual bool separates_terms() const = 0;
  /// The model is complete; `units` are this rank's, in the order of the model.
  virtual void find_uses(std::span<Unit* const> units, AllHooks hooks, std::size_t data_ranks) = 0;
  /// Units for uses of a parameter after its first one, if these have separate gradients: one unit for each, since the way in
  /// which data ranks share a gradient must not depend on the other parameters of this rank.
  virtual std::span<Unit> second_uses() = 0;

  // ---- a step

  /// Begins a step of this batch, which is data rank `data_rank`'s share of the step's micro-batches. Throws UsageError if it
  /// must be another share.
  virtual void begin(const BatchShare& batch, AllHooks hooks, std::size_t data_rank, std::size_t data_ranks) = 0;
  /// The layers of `unit` are about to add one micro-batch's gradients.
  virtual void open(const Unit& unit, std::size_t micro) = 0;
  /// The layers have done a first part of it and will resume.
  virtual void leave(const Unit& unit, std::size_t micro) = 0;
  /// The layers have added all of the micro-batch's gradients.
  virtual void close(Unit& unit, std::size_t micro, AllHooks hooks) = 0;
  /// A micro-batch has passed the unit; `last`: the last one of the step. Wrappers now reduce the gradients that they are to
  /// reduce.
  virtual void ready(Unit& owned, AllHooks hooks, bool last) = 0;
  /// The end of a step: the gradients of `ties` are added, each a unit in `tied`, and all sums are complete.
  virtual void finish(std::span<const Tie> ties, std::span<Unit> tied, AllHooks hooks) = 0;

  // ---- sums over data ranks

  /// The hook by which DataParallel sums a bucket over `ranks` ranks in this step; `own` is the configured one, null for a plain
  /// all-reduce.
  virtual hook::AnyHook* bucket_hook(std::size_t ranks, hook::AnyHook* own) = 0;
  /// The order in which `ranks` ranks add shards in this step; null: the communicator's own. `copies`: some of the ranks hold
  /// copies.
  virtual const ReductionTree* order_over(std::size_t ranks, bool copies) = 0;
  /// The terms of a step's loss at their indices, for a sum over all ranks and then over the terms as a tree.
  virtual std::vector<double> loss_terms(std::vector<double> losses, std::size_t data_rank, std::size_t data_ranks) const = 0;
  /// The 2-norm over the parts of all ranks. Collective.
  virtual double norm(const Communicator& communicator, const std::vector<GradientPart>& parts, const SquaredNorm& square) = 0;
  /// The square of that norm in a device's memory, without a wait of the host. False, on every rank, if it needs the host:
  /// nothing was done. Collective.
  virtual bool squares_on_device(const Communicator&, std::vector<GradientPart>, const SquaredNorm&, double* /*sum*/) {
    return false;
  }

 protected:
  // Calls the wrappers inside data parallelism (`data` false) or those that sum over data ranks (true), innermost first.
  static void notify(Unit& unit, AllHooks hooks, bool data) {
    for (std::size_t i = hooks.size(); i-- > 0;)
      if (hooks[i]->sums_data() == data) hooks[i]->gradients_ready(unit);
  }
  // If one holder of a parameter has a gradient, all have one.
  WEFT_COLD static void agree_on_touched(std::span<const Tie> ties) {
    for (const Tie& tie : ties) {
      if (!tie.holders || !tie.state->trainable()) continue;
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
