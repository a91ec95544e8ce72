// SPDX-License-Identifier: Apache-2.0
#pragma once
// The inputs and gradients with which a layer is tried: this rank's part of numbers that all ranks draw alike, in memory that is
// surrounded by NaN and becomes NaN when its last handle is gone. testing/layer_trial.hpp uses them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <weft/context/context.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/mesh/zigzag.hpp>
#include <weft/tensor/to.hpp>
#include <weft/tensor/transfer.hpp>
#include <weft/testing/numbers.hpp>

namespace weft::testing::detail {

/// The global indices of a rank's rows, on the axis A.
struct RankRows {
  std::size_t ranks = 1, rank = 0;
  weft::detail::Zigzag cut;  ///< the division of sequences by cp
  std::size_t global(std::size_t row, std::size_t rows) const { return cut.ranks > 1 ? cut.row(row) : rank * rows + row; }
};

/// The values of one rank in a context that binds A, or no axis. X is the type of the layer's input.
template <weft::detail::Axis A, class X, class Context>
class TrialValues {
 public:
  static constexpr bool spread = Context::has(A{});
  /// True if Y's rows are divided over A, so that RankRows gives their global indices.
  template <class Y>
  static constexpr bool by_rows = spread&& shard_dim<placement_t<Y, A>> == 0;

  /// `shape` is the shape of the whole input.
  TrialValues(const Context& context, const Shape& shape, const RankRows& rows, std::uint64_t seed)
      : context_(context), rows_(rows), guard_((shape.size() + 63) / 64 * 64) {
    for (std::size_t k = 0; k < 2; ++k) {
      shape_ = shape;
      const Numbers all = numbers(k == 0 ? key_of(seed, 5) : key_of(seed, 5, k), shape.size());
      inputs_[k] = local_part<X>(all, shape_);
    }
  }

  /// The shape of this rank's input.
  const Shape& shape() const { return shape_; }
  /// The numbers of this rank's first input.
  Numbers& input() { return inputs_[0]; }
  X input_of(std::size_t k) { return guarded<X>(shape_, inputs_[k]); }
  /// Frees the memory of inputs and gradients whose handles are gone.
  void clear() { kept_.clear(); }

  // Elements surrounded by NaN, which reveals reads beyond the ends. When the last handle is gone the elements become NaN as
  // well, which reveals a kept pointer. The memory itself stays valid.
  template <class Y>
  Y guarded(const Shape& shape, const Numbers& values) {
    Numbers all(values.size() + 2 * guard_, not_a_number);
    std::copy(values.begin(), values.end(), all.begin() + std::ptrdiff_t(guard_));
    const Tensor<double, Exec> memory(device(), {all.size()});
    copy_from_host(memory, std::span<const double>(all));
    kept_.push_back(memory);
    return Y(device(), shape,
             weft::detail::Buffer(
                 memory.data(),
                 [memory](void*) { kernels::fill<double>(memory.device(), memory.size(), memory.data(), not_a_number); }),
             guard_);
  }
  template <class Y>
  Numbers around(const Y& y) const {
    return copy_to_host(Tensor<double, Exec>(device(), {y.size() + 2 * guard_}, y.buffer()));
  }
  // The global indices of a Y of this shape.
  template <class Y>
  std::vector<std::size_t> places(const Shape& shape) const {
    std::vector<std::size_t> at(shape.size());
    const std::size_t rows = by_rows<Y> ? shape[0] : 1, inner = rows == 0 ? 0 : shape.size() / rows;
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t i = 0; i < inner; ++i) at[row * inner + i] = (by_rows<Y> ? rows_.global(row, rows) : row) * inner + i;
    return at;
  }
  // This rank's part of a whole Y's numbers. `shape` becomes the part's shape.
  template <class Y>
  Numbers local_part(const Numbers& all, Shape& shape) const {
    if constexpr (!spread) {
      return all;
    } else if constexpr (by_rows<Y>) {
      shape[0] /= rows_.ranks;
      Numbers mine;
      for (const std::size_t place : places<Y>(shape)) mine.push_back(all[place]);
      return mine;
    } else {
      replace_t<Y, Invariant<A>> whole(device(), shape);
      copy_from_host(whole, std::span<const double>(all));
      const auto part = to<placement_t<Y, A>>(context_, whole);
      shape = part.shape();
      return copy_to_host(part);
    }
  }

  // The gradient of forward's output, in the output's dual placement.
  template <class Y>
  auto gradient_of(const Y& output, std::size_t k) {
    std::size_t part = 0;
    return each_tensor(output, [&]<class One>(const One& y) {
      const std::uint64_t key = k + part == 0 ? key_of(77) : key_of(77, k, part);
      ++part;
      using Gradient = gradient_t<One>;
      Shape shape = y.shape();
      if constexpr (by_rows<One>) shape[0] *= rows_.ranks;
      else if constexpr (spread) shape = to<Invariant<A>>(context_, y).shape();
      const Numbers mine = local_part<Gradient>(numbers(key, shape.size()), shape);
      return guarded<Gradient>(shape, mine);
    });
  }

 private:
  Device& device() const { return context_.device(); }

  const Context& context_;
  RankRows rows_;
  std::size_t guard_;
  Shape shape_;
  Numbers inputs_[2];
  std::vector<Tensor<double, Exec>> kept_;
};

}  // namespace weft::testing::detail
