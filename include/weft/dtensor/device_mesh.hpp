// SPDX-License-Identifier: Apache-2.0
#pragma once
// The mesh of a DTensor: an ordered list of axes with their communicators, and the settings of the operations on its tensors.
//
//   dtensor::DeviceMesh grid(mesh, dp{}, tp{});
//   grid.set_byte_costs({8, 1});   // a byte over dp takes as long as 8 over tp

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/dtensor/sharding.hpp>
#include <weft/mesh/mesh.hpp>

namespace weft::dtensor {

namespace detail {
// Shared by all copies and sub-meshes of a DeviceMesh on its rank.
struct MeshState {
  bool recording = true;                      // operations are recorded for backward
  bool refusing = false;                      // RefuseMoves
  std::vector<std::string>* lines = nullptr;  // explain
  double bytes = 0;                           // moved so far
};
}  // namespace detail

/// An ordered list of axes, each with its communicator: some or all axes of a Mesh, or the program's communicators. Ranks that
/// differ only along these axes share DTensors. A value: copies share the communicators and the settings.
class DeviceMesh {
 public:
  /// The named axes of `mesh`; placements are given in this order.
  template <weft::detail::Axis... A, weft::detail::Axis... B>
  requires(sizeof...(B) > 0) explicit DeviceMesh(const Mesh<A...>& mesh, B... axes) {
    (axes_.push_back({std::string(B::name), mesh.comm(axes)}), ...);
  }
  explicit DeviceMesh(std::vector<Communicator> communicators) {
    for (Communicator& communicator : communicators) axes_.push_back({std::string(communicator.axis()), std::move(communicator)});
  }
  /// One axis with all ranks of a communicator.
  explicit DeviceMesh(const Communicator& communicator) : DeviceMesh(std::vector<Communicator>{communicator}) {}

  std::size_t axes() const { return axes_.size(); }
  const Communicator& comm(std::size_t axis) const { return axes_[axis].comm; }
  std::vector<AxisPlace> places() const;
  /// The mesh of some of the axes, in the order given: the ranks that differ only along them. Throws UsageError for an unknown
  /// name.
  DeviceMesh sub(std::initializer_list<std::string_view> names) const;
  std::string text() const { return dtensor::text(places()); }
  /// True if both have the same communicators in the same order.
  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b) { return a.same_axes(b); }

  /// The cost of a byte over each axis, relative to the others (default 1), for the choice of redistributions: plan::byte_costs
  /// computes them for a machine. All ranks must set the same. Throws UsageError unless there is one
  /// number of at least 0 for each axis.
  void set_byte_costs(const std::vector<double>& costs);

  /// Bytes that this mesh's DTensors have received in redistributions, as dtensor::moved_bytes counts them.
  double bytes_moved() const { return state_->bytes; }

  detail::MeshState& state() const { return *state_; }

 private:
  struct Line {
    std::string name;
    Communicator comm;
    double cost = 1;
  };
  bool same_axes(const DeviceMesh& other) const;

  std::vector<Line> axes_;
  std::shared_ptr<detail::MeshState> state_ = std::make_shared<detail::MeshState>();
};

}  // namespace weft::dtensor

#ifndef WEFT_COMPILED
#include <weft/dtensor/device_mesh_impl.hpp>
#endif
