// SPDX-License-Identifier: Apache-2.0
#pragma once
// The run-time tape of DTensor: which operation made a tensor, and the gradients that backward adds up. Gradients are values of
// the whole, computed by the same operations as forward values, so no rule of placement is written twice.
//
//   DTensor y = apply<T>("exp", ...);
//   return recorded(y, on(x, [y = y.detach()](const D& g) { return g * y; }));

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <weft/dtensor/device_mesh.hpp>
#include <weft/dtensor/explain.hpp>

namespace weft::dtensor::detail {

/// A tensor that needs a gradient, independent of its element type: a leaf, or the result of a recorded operation.
class Entry {
 public:
  Entry() = default;
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  virtual ~Entry() = default;

  /// Takes the gradient that was added up: a leaf keeps it, an operation adds its operands' gradients to them.
  virtual void propagate() = 0;
  /// Drops the operation and its saved values.
  virtual void release() = 0;

  std::vector<std::shared_ptr<Entry>> operands;
  std::size_t depth = 0;  // more than that of every operand
};

/// Propagates from `root` to all leaves, each entry after all operations that used it. Every rank has the same order.
void run_backward(const std::shared_ptr<Entry>& root);

/// a + b of equal shapes, by the rule of a sum (dtensor/apply.hpp).
template <class D>
D sum_of(const D& a, const D& b);

template <class D>
class GradientEntry final : public Entry {
 public:
  void add(const D& gradient) { gradient_ = gradient_ ? sum_of(*gradient_, gradient) : gradient; }

  void propagate() override {
    if (!gradient_) return;
    const D gradient = std::move(*gradient_);
    gradient_.reset();
    if (leaf) {
      note_gradient(gradient.mesh(), {gradient.shape(), sizeof(typename D::value_type), gradient.placements()}, leaf_placements);
      const D placed = gradient.moved(leaf_placements);
      total = total ? sum_of(*total, placed) : placed;
    } else if (backward) {
      backward(gradient);
    }
  }
  void release() override {
    if (leaf) return;
    backward = nullptr;
    operands.clear();
    released = true;
  }

  bool leaf = false, released = false;
  Placements leaf_placements;  // of a leaf's gradient
  std::optional<D> total;      // of a leaf: since zero_grad
  std::function<void(const D&)> backward;

 private:
  std::optional<D> gradient_;  // of this backward
};

/// An operand and the function that computes its gradient from the result's.
template <class D, class F>
struct OperandGradient {
  D operand;
  F gradient;
};
template <class D, class F>
OperandGradient<D, F> on(const D& operand, F gradient) {
  return {operand, std::move(gradient)};
}

/// `y`, made by an operation on operands with these gradients; recorded if one of them needs a gradient.
template <class D, class... G>
D recorded(const D& y, G... gradients) {
  if (!y.mesh().state().recording || !(false || ... || (gradients.operand.entry() != nullptr))) return y;
  auto entry = std::make_shared<GradientEntry<D>>();
  const auto attach = [&](const auto& one) {
    if (one.operand.entry() == nullptr) return;
    entry->operands.push_back(one.operand.entry());
    entry->depth = std::max(entry->depth, one.operand.entry()->depth + 1);
  };
  (attach(gradients), ...);
  entry->backward = [gradients...](const D& g) {
    const auto send = [&](const auto& one) {
      if (one.operand.entry() != nullptr) one.operand.entry()->add(one.gradient(g));
    };
    (send(gradients), ...);
  };
  return y.with_entry(std::move(entry));
}

/// While it exists, operations on tensors of the mesh are not recorded.
class NoGradientScope {
 public:
  explicit NoGradientScope(const DeviceMesh& mesh) : mesh_(mesh), before_(std::exchange(mesh_.state().recording, false)) {}
  ~NoGradientScope() { mesh_.state().recording = before_; }
  NoGradientScope(const NoGradientScope&) = delete;
  NoGradientScope& operator=(const NoGradientScope&) = delete;

 private:
  DeviceMesh mesh_;
  bool before_;
};

}  // namespace weft::dtensor::detail

namespace weft::dtensor {
/// While it exists, operations on tensors of `mesh`, its copies and its sub-meshes are not recorded for backward.
using NoGradient = detail::NoGradientScope;
}  // namespace weft::dtensor

#ifndef WEFT_COMPILED
#include <weft/dtensor/tape_impl.hpp>
#endif
