// SPDX-License-Identifier: Apache-2.0
#pragma once
// The axes of a DeviceMesh. Definitions for dtensor/device_mesh.hpp.

#include <weft/core/inline.hpp>
#include <weft/dtensor/device_mesh.hpp>

namespace weft::dtensor {

WEFT_INLINE std::vector<AxisPlace> DeviceMesh::places() const {
  std::vector<AxisPlace> places;
  for (const Line& axis : axes_)
    places.push_back({axis.name, std::size_t(axis.comm.size()), std::size_t(axis.comm.rank()), axis.cost});
  return places;
}

WEFT_INLINE DeviceMesh DeviceMesh::sub(std::initializer_list<std::string_view> names) const {
  DeviceMesh mesh{std::vector<Communicator>()};
  mesh.state_ = state_;
  for (const std::string_view name : names) {
    std::size_t at = 0;
    while (at < axes_.size() && axes_[at].name != name) ++at;
    if (at == axes_.size()) throw_error<UsageError>({"dtensor: no axis ", name, " in the mesh ", dtensor::text(places())});
    mesh.axes_.push_back(axes_[at]);
  }
  return mesh;
}

WEFT_INLINE void DeviceMesh::set_byte_costs(const std::vector<double>& costs) {
  bool fits = costs.size() == axes_.size();
  for (const double cost : costs) fits = fits && cost >= 0;
  if (!fits)
    throw_error<UsageError>({"dtensor: set_byte_costs takes one number of at least 0 for each axis of ", text(), ", not ",
                             costs.size(), " numbers or a negative one"});
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) axes_[axis].cost = costs[axis];
}

WEFT_INLINE bool DeviceMesh::same_axes(const DeviceMesh& other) const {
  bool same = axes_.size() == other.axes_.size();
  for (std::size_t axis = 0; same && axis < axes_.size(); ++axis)
    same = axes_[axis].comm.group() == other.axes_[axis].comm.group() && axes_[axis].name == other.axes_[axis].name;
  return same;
}

}  // namespace weft::dtensor
