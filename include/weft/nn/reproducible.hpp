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
#include <weft/tensor/device.hpp>

namespace weft {

struct Batch;
class Communicator;
struct GradientPart;
class Hooks;
struct ParameterState;
class ReductionTree;
struct Unit;
namespace hook {
class Erased;
}

namespace detail {

/// Keeps the gradients of micro-batches apart until the tree over them says what is added (parallel/gradient_trees.hpp).
class MicroBatchSums {
 public:
  virtual ~MicroBatchSums() = default;
  /// Each use of a parameter adds up its own gradients: the first one in the parameter's, others in a second state. `units`: this
  /// rank's, in the order of the model.
  virtual void find_uses(std::span<Unit* const> units, std::span<Hooks* const> hooks, std::size_t data_ranks) = 0;
  /// A step of this batch, data rank `data_rank`'s part of the step's micro-batches. Throws UsageError where it is another part.
  virtual void begin(const Batch& batch, std::span<Hooks* const> hooks, std::size_t data_rank, std::size_t data_ranks) = 0;
  /// The layers of `unit` are about to add one micro-batch's gradients: each goes to a place of its own.
  virtual void open(const Unit& unit) = 0;
  /// They have; what wrappers inside of data parallelism owe is paid.
  virtual void close(const Unit& unit, std::size_t micro) = 0;
  /// All micro-batches of these parameters are in: the first of the rank's nodes lies where the gradient belongs, the others in
  /// ParameterState::nodes.
  virtual void complete(const Unit& owned) = 0;
  /// The second states: a unit of their own.
  virtual Unit& second_uses() = 0;
  /// What the data ranks have summed for each use of these parameters is added, first + last, the same bits on both stages of a
  /// tied parameter: of those, the other is rank `peer` of `pipeline`.
  virtual void add_uses(std::span<ParameterState* const> parameters, const Communicator* pipeline, int peer, int tag) = 0;
};

/// How DataParallel sums its buckets in the order of a tree.
class TreeHooks {
 public:
  virtual ~TreeHooks() = default;
  virtual void clear() = 0;
  /// One more bucket's, over `ranks` ranks; null where a plain all-reduce adds in the same order.
  virtual hook::Erased* add(const ReductionTree& tree, std::size_t ranks) = 0;
};

struct ReproducibleParts {
  std::unique_ptr<MicroBatchSums> (*sums)(DefaultDevice&);
  std::unique_ptr<ReductionTree> (*tree)(std::size_t terms, std::size_t ranks);
  std::unique_ptr<TreeHooks> (*hooks)(DefaultDevice&);
  double (*norm)(DefaultDevice&, const Communicator&, const List<GradientPart>&);
};
/// Defined in parallel/reproducible.hpp.
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
