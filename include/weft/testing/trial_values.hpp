// SPDX-License-Identifier: Apache-2.0
#pragma once
// The inputs and gradients with which a layer is tried: this rank's part of numbers that all ranks draw alike, in memory that is
// surrounded by NaN and becomes NaN when its last handle is gone. testing/layer_trial.hpp uses them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
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

/// The values of one rank in a context that binds A, or no axis, and other axes, which do not cut rows. X is the type of the
/// layer's input.
template <weft::detail::Axis A, class X, class Context, weft::detail::Axis... Others>
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
  // y as a tensor that each rank has whole, but for the rows that A cuts.
  template <class Y>
  auto home(const Y& y) const {
    if constexpr (!spread || by_rows<Y>) return gathered<Others...>(y);
    else return gathered<A, Others...>(y);
  }
  // This rank's part of a whole Y's numbers. `shape` becomes the part's shape.
  template <class Y>
  Numbers local_part(const Numbers& all, Shape& shape) const {
    using Home = decltype(home(std::declval<const Y&>()));
    Numbers mine = all;
    if constexpr (by_rows<Y>) {
      shape[0] /= rows_.ranks;
      mine.clear();
      for (const std::size_t place : places<Y>(shape)) mine.push_back(all[place]);
    }
    if constexpr (std::is_same_v<Home, Y>) {
      return mine;
    } else {
      Home whole(device(), shape);
      copy_from_host(whole, std::span<const double>(mine));
      const auto part = placed<Y>(whole);
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
      Shape shape = home(y).shape();
      if constexpr (by_rows<One>) shape[0] *= rows_.ranks;
      const Numbers mine = local_part<Gradient>(numbers(key, shape.size()), shape);
      return guarded<Gradient>(shape, mine);
    });
  }

 private:
  // y, Invariant on these axes.
  template <class... Axes, class Y>
  auto gathered(const Y& y) const {
    if constexpr (sizeof...(Axes) == 0) return y;
    else return gathered_first<Axes...>(y);
  }
  template <class First, class... More, class Y>
  auto gathered_first(const Y& y) const {
    return gathered<More...>(to<Invariant<First>>(context_, y));
  }
  // The part of a home that Y's placements give to this rank.
  template <class Y, class W>
  auto placed(const W& whole) const {
    if constexpr (!spread || by_rows<Y>) return placed_on<Y, Others...>(whole);
    else return placed_on<Y, A, Others...>(whole);
  }
  template <class Y, class First, class... More, class W>
  auto placed_on(const W& whole) const {
    const auto part = to<placement_t<Y, First>>(context_, whole);
    if constexpr (sizeof...(More) == 0) return part;
    else return placed_on<Y, More...>(part);
  }
  Device& device() const { return context_.device(); }

  const Context& context_;
  RankRows rows_;
  std::size_t guard_;
  Shape shape_;
  Numbers inputs_[2];
  std::vector<Tensor<double, Exec>> kept_;
};

}  // namespace weft::testing::detail
