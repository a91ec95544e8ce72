// SPDX-License-Identifier: Apache-2.0
#pragma once
// The option `reproducible`, as a bool that brings its code along: what such runs need beside plain ones is compiled only in
// programs that set it, whether to a constant or to what a user said.
//
//   ModelOptions{.reproducible = true}

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>

#include <weft/core/list.hpp>
#include <weft/device/device.hpp>

namespace weft {

struct Batch;
class Communicator;
class ParameterState;
namespace hook {
class AnyHook;
}

namespace detail {

struct GradientPart;
class Hooks;
class ReductionTree;
struct Unit;

/// A parameter that several units use, where their gradients are added at the end of a step.
struct Tie {
  ParameterState* state;
  std::shared_ptr<const Communicator> holders;  ///< the ranks of the pipeline that have a use of it; null: this rank has all
  List<int> uses;                               ///< of each use, in the order of the model, the rank of `holders` that has it
};

/// Keeps the gradients of micro-batches apart until the tree over them says what is added (parallel/reproducible/gradient_trees.hpp).
class MicroBatchSums {
 public:
  virtual ~MicroBatchSums() = default;
  /// Each use of a parameter adds up its own gradients: the first one in the parameter's, others in a second state. `units`: this
  /// rank's, in the order of the model.
  virtual void find_uses(std::span<Unit* const> units, std::span<Hooks* const> hooks, std::size_t data_ranks) = 0;
  /// A step of this batch, data rank `data_rank`'s part of the step's micro-batches. Throws UsageError where it is another part.
  virtual void begin(const Batch& batch, std::span<Hooks* const> hooks, std::size_t data_rank, std::size_t data_ranks) = 0;
  /// The layers of `unit` are about to add one micro-batch's gradients: each goes to a place of its own.
  virtual void open(const Unit& unit, std::size_t micro) = 0;
  /// They have done a first part of it, and will go on.
  virtual void leave(const Unit& unit, std::size_t micro) = 0;
  /// They have; what wrappers inside of data parallelism owe is paid.
  virtual void close(const Unit& unit, std::size_t micro) = 0;
  /// All micro-batches of these parameters are in: the first of the rank's nodes lies where the gradient belongs, the others in
  /// GradientState::nodes.
  virtual void complete(const Unit& owned) = 0;
  /// The second states: a unit of its own each, since how data ranks share one must not depend on what else is here.
  virtual std::span<Unit> second_uses() = 0;
  /// What the data ranks have summed for each use of these parameters is added in the order of the model, the same bits on all ranks that
  /// hold one.
  virtual void add_uses(std::span<const Tie> ties) = 0;
};

/// How DataParallel sums its buckets in the order of a tree.
class TreeHooks {
 public:
  virtual ~TreeHooks() = default;
  virtual void clear() = 0;
  /// One more bucket's, over `ranks` ranks; null where a plain all-reduce adds in the same order.
  virtual hook::AnyHook* add(const ReductionTree& tree, std::size_t ranks) = 0;
};

struct ReproducibleParts {
  std::unique_ptr<MicroBatchSums> (*sums)(DefaultDevice&);
  std::unique_ptr<ReductionTree> (*tree)(std::size_t terms, std::size_t ranks);
  std::unique_ptr<TreeHooks> (*hooks)(DefaultDevice&);
  double (*norm)(DefaultDevice&, const Communicator&, const List<GradientPart>&);
};
/// Defined in parallel/reproducible/parts.hpp.
template <class Device>
const ReproducibleParts& reproducible_parts();

}  // namespace detail

class ReproducibleOption {
 public:
  ReproducibleOption() = default;
  template <std::same_as<bool> B>
  ReproducibleOption(B on) : parts_(on ? &detail::reproducible_parts<DefaultDevice>() : nullptr) {}
  /// Null: it is off.
  operator const detail::ReproducibleParts*() const { return parts_; }

 private:
  const detail::ReproducibleParts* parts_ = nullptr;
};

}  // namespace weft
