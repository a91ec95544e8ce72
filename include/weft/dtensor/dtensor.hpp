// SPDX-License-Identifier: Apache-2.0
#pragma once
// A distributed tensor with a layout over a mesh chosen at run time, similar to torch.distributed.tensor's. weft's own layers
// have placements in their types.
//
//   dtensor::DeviceMesh grid(mesh, dp{}, tp{});
//   auto x = distribute_tensor(grid, whole, {dtensor::shard(0), dtensor::replicate()});   // uses `whole` of the first rank
//   auto y = x.redistribute({dtensor::replicate(), dtensor::shard(1)});                   // y.to_local(), y.full_tensor()
//
// Shards may be uneven: torch.chunk's rule, later ranks short or empty. Operations are in dtensor/operations.hpp.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/dtensor/choose.hpp>
#include <weft/dtensor/device_mesh.hpp>
#include <weft/dtensor/explain.hpp>
#include <weft/dtensor/redistribute.hpp>
#include <weft/dtensor/sharding.hpp>
#include <weft/dtensor/tape.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace dtensor {
/// The base of every DTensor: argument-dependent lookup finds the operations of namespace dtensor through it.
struct Operand {};
}  // namespace dtensor

/// A distributed tensor of T. All functions except the getters are collective over the mesh: its ranks make the same calls.
template <detail::Scalar T, class Exec = DefaultDevice::execution_space>
class DTensor : public dtensor::Operand {
 public:
  using value_type = T;
  using execution_space = Exec;
  using Local = Tensor<T, Exec>;
  using Placements = dtensor::Placements;

  /// Makes this rank's elements a part of the whole. Without `shape` the ranks add up their extents (collective); with it nothing
  /// is communicated. Throws ShapeError if `local` does not have the shape that torch.chunk's rule requires on this rank.
  static DTensor from_local(const dtensor::DeviceMesh& mesh, const Local& local, const Placements& placements,
                            const Shape& shape) {
    return DTensor(mesh, shape, dtensor::checked(shape, mesh.places(), placements), local);
  }
  static DTensor from_local(const dtensor::DeviceMesh& mesh, const Local& local, const Placements& placements) {
    const Placements mine = dtensor::checked(local.shape(), mesh.places(), placements);
    Shape shape = local.shape();
    // Starts with the last axis, because a later axis divides the parts of an earlier one.
    for (std::size_t axis = mesh.axes(); axis-- > 0;)
      if (mine[axis].is_shard()) {
        std::int64_t extent = std::int64_t(shape[std::size_t(mine[axis].dim)]);
        mesh.comm(axis).all_reduce(std::span<std::int64_t>(&extent, 1));
        shape[std::size_t(mine[axis].dim)] = std::size_t(extent);
      }
    return from_local(mesh, local, mine, shape);
  }

  const Shape& shape() const { return shape_; }  ///< of the whole
  const Placements& placements() const { return placements_; }
  const dtensor::DeviceMesh& mesh() const { return mesh_; }
  /// This rank's elements; a handle, not a copy.
  const Local& to_local() const { return local_; }
  /// The position of this rank's elements in the whole.
  dtensor::Part part() const { return dtensor::part_of(shape_, mesh_.places(), placements_); }

  /// The same value with any other placements. Data that stays on its rank is not copied, so the results may share their
  /// elements. Throws UsageError for invalid placements, and for the average of integers. Numerics: reductions are in rank order;
  /// other steps copy bits.
  DTensor redistribute(const Placements& placements) const {
    const Placements target = dtensor::checked(shape_, mesh_.places(), placements);
    dtensor::detail::note_redistribution(mesh_, {shape_, sizeof(T), placements_}, target);
    const DTensor y = moved(target);
    if constexpr (detail::Real<T>)
      return dtensor::detail::recorded(y, dtensor::detail::on(*this, [](const DTensor& g) { return g; }));
    else return y;
  }
  /// The whole value, on every rank.
  Local full_tensor() const { return moved(Placements(mesh_.axes())).local_; }

  // ---- gradients (dtensor/tape.hpp), which T must be able to hold
  /// Makes the tensor a leaf: backward adds its gradient to grad(). The gradient has the tensor's placements, and is whole on
  /// axes on which the tensor is partial. Throws UsageError for the result of a recorded operation. Copies share the gradient.
  DTensor& requires_grad();
  bool needs_grad() const { return entry_ != nullptr; }
  /// The gradient that backward has added up since zero_grad. Throws UsageError if there is none.
  DTensor grad() const;
  bool has_grad() const { return entry_ != nullptr && entry_->total.has_value(); }
  void zero_grad() {
    if (entry_ != nullptr) entry_->total.reset();
  }
  /// Adds the gradients of this value, which has one element, to all leaves it was computed from, and frees the recorded
  /// operations. Throws UsageError for a tensor that needs no gradient and for a second backward.
  void backward() const;
  /// The same for any shape, from the gradient `seed` of this tensor.
  void backward(const DTensor& seed) const;
  /// The same elements, of which no operation is recorded.
  DTensor detach() const { return with_entry(nullptr); }

  // ---- for operations
  using Entry = dtensor::detail::GradientEntry<DTensor>;
  const std::shared_ptr<Entry>& entry() const { return entry_; }
  DTensor with_entry(std::shared_ptr<Entry> entry) const {
    DTensor y = *this;
    y.entry_ = std::move(entry);
    return y;
  }
  /// redistribute to checked placements, without a record.
  DTensor moved(const Placements& target) const {
    const auto places = mesh_.places();
    Placements now = placements_;
    Local local = local_;
    mesh_.state().bytes += dtensor::moved_bytes(shape_, sizeof(T), places, placements_, target);
    for (const dtensor::Step& step : dtensor::steps_between(placements_, target)) {
      local = dtensor::detail::apply(mesh_.comm(step.axis), local, step, extent_of(places, now, step));
      now[step.axis] = step.to;
    }
    return DTensor(mesh_, shape_, target, std::move(local));
  }

 private:
  DTensor(const dtensor::DeviceMesh& mesh, const Shape& shape, Placements placements, Local local)
      : mesh_(mesh), shape_(shape), placements_(std::move(placements)), local_(std::move(local)) {
    const Shape expected = part().shape;
    if (!(expected == local_.shape()))
      throw_error<ShapeError>({"dtensor ", shape_.text(), " with placements ", dtensor::text(placements_), " on ", mesh_.text(),
                               ": this rank holds ", local_.shape().text(), ", expected ", expected.text(), where()});
  }

  std::string where() const {
    std::string all;
    for (const auto& axis : mesh_.places())
      all += (all.empty() ? " at " : ", ") + std::string(axis.name) + " rank " + std::to_string(axis.rank);
    return all;
  }
  // The extent of the dim that the step's axis divides, after the division by earlier axes.
  std::size_t extent_of(std::vector<dtensor::AxisPlace> places, Placements now, const dtensor::Step& step) const {
    if (!step.from.is_shard()) return 0;
    places.resize(step.axis);
    now.resize(step.axis);
    return dtensor::part_of(shape_, places, now).shape[std::size_t(step.from.dim)];
  }

  dtensor::DeviceMesh mesh_;
  Shape shape_;
  Placements placements_;
  Local local_;
  std::shared_ptr<Entry> entry_;  // null: no gradient is needed
};

namespace dtensor {

/// The source of distribute_tensor's elements. first_rank: the mesh's first rank, which sends them to the others. every_rank:
/// each rank's own copy; the copies must be equal, and nothing is sent.
enum class Source { first_rank, every_rank };

namespace detail {

// The first rank of an axis sends each rank its chunk.
template <class X>
X scattered(const Communicator& comm, const X& x, std::size_t dim) {
  X mine = slice(comm, x, dim);
  if (comm.rank() != 0) {
    if (mine.size() != 0) comm.recv(mine, 0);
    return mine;
  }
  const auto chunks = chunks_of(x.shape()[dim], comm.size());
  for (int rank = 1; rank < comm.size(); ++rank) {
    const Chunk& chunk = chunks[std::size_t(rank)];
    X piece(x.device(), with_extent(x.shape(), dim, chunk.length));
    if (piece.size() == 0) continue;
    take_slice(x.device(), x.shape(), dim, chunk, x.data(), piece.data());
    comm.send(piece, rank);
  }
  return mine;
}

}  // namespace detail

}  // namespace dtensor

/// Distributes `whole` over `mesh`. Every rank passes a tensor of the whole's shape; with Source::first_rank only the first
/// rank's elements are used. Collective. Throws UsageError for invalid placements.
template <detail::Scalar T, class Exec>
DTensor<T, Exec> distribute_tensor(const dtensor::DeviceMesh& mesh, const Tensor<T, Exec>& whole,
                                   const dtensor::Placements& placements, dtensor::Source source = dtensor::Source::first_rank) {
  const auto target = dtensor::checked(whole.shape(), mesh.places(), placements);
  using D = DTensor<T, Exec>;
  if (source == dtensor::Source::every_rank)
    return D::from_local(mesh, whole, dtensor::Placements(mesh.axes()), whole.shape()).redistribute(target);
  Tensor<T, Exec> local = whole;
  for (std::size_t axis = 0; axis < mesh.axes(); ++axis) {
    const Communicator& comm = mesh.comm(axis);
    if (comm.size() == 1) continue;
    if (target[axis].is_shard()) {
      local = dtensor::detail::scattered(comm, local, std::size_t(target[axis].dim));
      continue;
    }
    Tensor<T, Exec> copy(whole.device(), local.shape());  // `whole` still belongs to the caller
    weft::detail::copy_rows(whole.device(), 1, local.size(), local.data(), local.size(), copy.data(), local.size());
    comm.broadcast(copy, 0);
    local = target[axis].is_partial() ? dtensor::detail::as_term(comm, copy, target[axis].reduction) : copy;
  }
  return D::from_local(mesh, local, target, whole.shape());
}

}  // namespace weft

#include <weft/dtensor/apply.hpp>
