// SPDX-License-Identifier: Apache-2.0
#pragma once
// An operation on DTensors: its operands are brought to the cheapest placements that its rule takes, and each rank then computes
// its part of the result from its parts of the operands.
//
//   return apply<T>("exp", elementwise_rule(rank, 1, 0), x.shape(),
//                   [](const D& y, const D& x) { kernels::map<T>(..., x.to_local().data(), y.to_local().data(), Exp()); }, x);

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include <weft/dtensor/choose.hpp>
#include <weft/dtensor/dtensor.hpp>
#include <weft/dtensor/explain.hpp>
#include <weft/dtensor/tape.hpp>
#include <weft/kernels/elementwise.hpp>

namespace weft::dtensor::detail {

using weft::detail::alphabet;
using weft::detail::elementwise_rule;
using weft::detail::Letters;

template <class D>
inline constexpr bool is_dtensor = false;
template <class T, class Exec>
inline constexpr bool is_dtensor<DTensor<T, Exec>> = true;

template <class D>
OperandInfo info_of(const D& x) {
  return {x.shape(), sizeof(typename D::value_type), x.placements()};
}

template <class D, class... X>
void require_one_mesh(std::string_view operation, const D& first, const X&... others) {
  [[maybe_unused]] const auto check = [&](const auto& other) {
    if (!(first.mesh() == other.mesh()))
      throw_error<UsageError>({"dtensor: ", operation, " of ", first.shape().text(), " on ", first.mesh().text(), " and ",
                               other.shape().text(), " on ", other.mesh().text(),
                               ": the meshes differ; distribute both tensors over one DeviceMesh (full_tensor, then "
                               "distribute_tensor with Source::every_rank)"});
  };
  (check(others), ...);
}
template <class... X>
[[noreturn]] void refuse_shapes(std::string_view operation, std::string_view why, const X&... x) {
  const std::array<OperandInfo, sizeof...(X)> operands{info_of(x)...};
  throw_error<ShapeError>({"dtensor: ", call_text(operation, operands), ": ", why});
}

/// The result of an operation on these operands, its elements not yet computed.
template <class R, class D>
DTensor<R, typename D::execution_space> unset_result(const D& like, const Shape& shape, const Placements& placements) {
  using Local = Tensor<R, typename D::execution_space>;
  const Part part = part_of(shape, like.mesh().places(), placements);
  return DTensor<R, typename D::execution_space>::from_local(like.mesh(), Local(like.to_local().device(), part.shape), placements,
                                                             shape);
}

/// Brings the operands to the placements of the cheapest choice and calls local(result, operands...), which computes this rank's
/// elements of the result, of type R. Not recorded.
template <class R, class F, class D, class... X>
DTensor<R, typename D::execution_space> apply(std::string_view name, const OperationRule& rule, const Shape& shape,
                                              const F& local, const D& x, const X&... others) {
  require_one_mesh(name, x, others...);
  const std::array<OperandInfo, 1 + sizeof...(X)> operands{info_of(x), info_of(others)...};
  const Choice choice = choose(rule, operands, shape, x.mesh().places());
  note_operation(x.mesh(), name, operands, choice, shape);
  const auto y = unset_result<R>(x, shape, choice.result);
  const auto run = [&]<std::size_t... I>(const std::tuple<const D&, const X&...>& all, std::index_sequence<I...>) {
    const std::tuple moved(std::get<I>(all).moved(choice.operands[I])...);
    local(y, std::get<I>(moved)...);
  };
  run({x, others...}, std::make_index_sequence<1 + sizeof...(X)>());
  return y;
}

/// Whether an axis of several ranks cuts this dim of x.
template <class D>
bool is_cut(const D& x, int dim) {
  for (std::size_t axis = 0; axis < x.mesh().axes(); ++axis)
    if (x.placements()[axis] == shard(dim) && x.mesh().comm(axis).size() > 1) return true;
  return false;
}
/// All-reduces `numbers`, of which each row of x along `dim` has `each`, over the axes that cut `dim`: inside of an operation.
template <class D, class Numbers>
void reduce_inside(std::string_view name, const D& x, int dim, const Numbers& numbers, std::size_t each, Reduction reduction) {
  std::vector<AxisPlace> places = x.mesh().places();
  for (AxisPlace& place : places) place.rank = 0;  // the busiest rank
  const Shape rows = part_of(weft::detail::with_extent(x.shape(), std::size_t(dim), 1), places, x.placements()).shape;
  const double bytes = double(rows.size() * each * sizeof(typename Numbers::value_type));
  for (std::size_t axis = 0; axis < x.mesh().axes(); ++axis) {
    const Communicator& comm = x.mesh().comm(axis);
    if (!(x.placements()[axis] == shard(dim)) || comm.size() == 1) continue;
    if (numbers.size() != 0) comm.all_reduce(numbers, reduction);
    note_inside(x.mesh(), name, comm.axis(), 2 * bytes * double(comm.size() - 1) / comm.size());
  }
}

template <class D>
D sum_of(const D& a, const D& b) {
  using T = typename D::value_type;
  const auto local = [](const D& y, const D& l, const D& r) {
    kernels::add<T>(y.to_local().device(), y.to_local().size(), l.to_local().data(), r.to_local().data(), y.to_local().data());
  };
  return apply<T>("add", elementwise_rule(int(a.shape().rank()), 2, 0b11), a.shape(), local, a, b);
}

}  // namespace weft::dtensor::detail

namespace weft {

template <detail::Scalar T, class Exec>
DTensor<T, Exec>& DTensor<T, Exec>::requires_grad() {
  static_assert(detail::Real<T>, "weft: dtensor: only tensors of real numbers have a gradient");
  if (entry_ != nullptr && !entry_->leaf)
    throw_error<UsageError>({"dtensor: requires_grad of ", shape_.text(),
                             ", the result of a recorded operation: make it a leaf "
                             "first with detach()"});
  if (entry_ != nullptr) return *this;
  entry_ = std::make_shared<Entry>();
  entry_->leaf = true;
  for (const auto& placement : placements_)
    entry_->leaf_placements.push_back(placement.is_partial() ? dtensor::replicate() : placement);
  return *this;
}

template <detail::Scalar T, class Exec>
DTensor<T, Exec> DTensor<T, Exec>::grad() const {
  if (!has_grad())
    throw_error<UsageError>({"dtensor: grad of ", shape_.text(), " ", dtensor::text(placements_),
                             ": no backward has reached it; only leaves (requires_grad) keep a gradient"});
  return *entry_->total;
}

template <detail::Scalar T, class Exec>
void DTensor<T, Exec>::backward(const DTensor& seed) const {
  dtensor::detail::require_one_mesh("backward", *this, seed);
  if (!(seed.shape() == shape_))
    throw_error<ShapeError>({"dtensor: backward of ", shape_.text(), " from a gradient ", seed.shape().text()});
  if (entry_ == nullptr)
    throw_error<UsageError>({"dtensor: backward of ", shape_.text(),
                             ": it was computed from no tensor with requires_grad, or "
                             "within NoGradient"});
  if (entry_->released)
    throw_error<UsageError>({"dtensor: a second backward of ", shape_.text(),
                             ": the first one has freed its operations; compute "
                             "the value again"});
  const dtensor::NoGradient scope(mesh_);
  entry_->add(seed.detach());
  dtensor::detail::run_backward(entry_);
}

template <detail::Scalar T, class Exec>
void DTensor<T, Exec>::backward() const {
  if (shape_.size() != 1)
    throw_error<ShapeError>(
        {"dtensor: backward of ", shape_.text(), ": it has not one element; give the gradient, y.backward(g)"});
  const Placements whole(mesh_.axes());
  const DTensor one = dtensor::detail::unset_result<T>(*this, shape_, whole);
  kernels::fill<T>(local_.device(), 1, one.local_.data(), T(accumulate_t<T>(1)));
  backward(one);
}

}  // namespace weft
