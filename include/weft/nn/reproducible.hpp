// SPDX-License-Identifier: Apache-2.0
#pragma once
// The option `reproducible`, as a bool that brings its code along: what such runs need beside plain ones is compiled only in
// programs that set it, whether to a constant or to what a user said.
//
//   ModelOptions{.reproducible = true}

#include <concepts>
#include <cstddef>
#include <memory>

#include <weft/tensor/device.hpp>

namespace weft {

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
  /// `unit` uses parameters whose gradients are `home`'s: the parameter itself, or a second state for a second use.
  virtual void add_use(const Unit& unit, ParameterState* state, ParameterState* home) = 0;
  /// A step of the micro-batches [first, first + count) of `terms`.
  virtual void begin(std::size_t first, std::size_t count, std::size_t terms) = 0;
  /// The layers of `unit` are about to add one micro-batch's gradients: each goes to a place of its own.
  virtual void open(const Unit& unit) = 0;
  /// They have; what wrappers inside of data parallelism owe is paid.
  virtual void close(const Unit& unit, std::size_t micro) = 0;
  /// All micro-batches of these parameters are in: the first of the rank's nodes lies where the gradient belongs, the others in
  /// ParameterState::nodes.
  virtual void complete(const Unit& owned) = 0;
};

struct ReproducibleParts {
  std::unique_ptr<MicroBatchSums> (*sums)(DefaultDevice&);
  std::unique_ptr<ReductionTree> (*tree)(std::size_t terms, std::size_t ranks);
  std::unique_ptr<hook::Erased> (*hook)(DefaultDevice&, const ReductionTree&);
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
