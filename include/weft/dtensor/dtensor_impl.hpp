// SPDX-License-Identifier: Apache-2.0
#pragma once
// The axes of a DeviceMesh. Definitions for dtensor/dtensor.hpp.

#include <weft/core/inline.hpp>
#include <weft/dtensor/dtensor.hpp>

namespace weft::dtensor {

WEFT_INLINE std::vector<AxisPlace> DeviceMesh::places() const {
  std::vector<AxisPlace> places;
  for (const Line& axis : axes_) places.push_back({axis.name, std::size_t(axis.comm.size()), std::size_t(axis.comm.rank())});
  return places;
}

WEFT_INLINE DeviceMesh DeviceMesh::sub(std::initializer_list<std::string_view> names) const {
  DeviceMesh mesh{std::vector<Communicator>()};
  for (const std::string_view name : names) {
    std::size_t at = 0;
    while (at < axes_.size() && axes_[at].name != name) ++at;
    if (at == axes_.size()) throw_error<UsageError>({"dtensor: no axis ", name, " in the mesh ", dtensor::text(places())});
    mesh.axes_.push_back(axes_[at]);
  }
  return mesh;
}

}  // namespace weft::dtensor
