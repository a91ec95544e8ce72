// SPDX-License-Identifier: Apache-2.0
#pragma once
// DTensors of random numbers: functions of the seed and the index in the whole, so every layout has the same values.
//
//   auto w = dtensor::normal<float>(world.device(), grid, {512, 64}, {replicate(), shard(0)}, seed, 0, 0.02);

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <weft/core/philox.hpp>
#include <weft/dtensor/dtensor.hpp>
#include <weft/kernels/random.hpp>

namespace weft::dtensor {

namespace detail {

/// Calls f(rows, columns, data, first_row, first_column, row_width) for matrices that together are this rank's part of a tensor;
/// entry (r, c) has the index (first_row + r) * row_width + first_column + c in the whole.
template <class T, class F>
void for_each_block(const Shape& whole, const Part& part, T* data, const F& f) {
  struct Dim {
    std::size_t here = 1, first = 0, all = 1;
  };
  std::array<Dim, Shape::max_rank> dims;  // the last `count` of them
  std::size_t count = 0;
  for (std::size_t dim = 0; dim < whole.rank(); ++dim) {
    const std::size_t all = whole[dim];
    if (count != 0 && part.shape[dim] == all) {  // the previous dim and this one are consecutive elements
      Dim& last = dims.back();
      last = {last.here * all, last.first * all, last.all * all};
      continue;
    }
    std::shift_left(dims.begin(), dims.end(), 1);
    dims.back() = {part.shape[dim], part.first[dim], all};
    ++count;
  }
  const Dim columns = dims.back(), rows = dims[dims.size() - 2];
  const std::span<const Dim> outer = std::span(dims).first(dims.size() - 2);
  std::size_t blocks = 1;
  for (const Dim& dim : outer) blocks *= dim.here;
  for (std::size_t block = 0; block < blocks; ++block, data += rows.here * columns.here) {
    std::size_t row = 0, stride = rows.all, rest = block;  // the row in the whole where the block's outer dims begin
    for (std::size_t d = outer.size(); d-- > 0; stride *= outer[d].all, rest /= outer[d].here)
      row += (outer[d].first + rest % outer[d].here) * stride;
    f(rows.here, columns.here, data, row + rows.first, columns.first, columns.all);
  }
}

/// The DTensor whose blocks f(rows, columns, data, key, first_row, first_column, row_width) fills, as the kernels of
/// kernels/random.hpp do.
template <class T, class Exec, class F>
DTensor<T, Exec> filled(Device<Exec>& device, const DeviceMesh& mesh, const Shape& shape, const Placements& placements,
                        std::uint64_t key, const F& f) {
  const auto places = mesh.places();
  const Placements target = checked(shape, places, placements);
  const Part part = part_of(shape, places, target);
  Tensor<T, Exec> local(device, part.shape);
  const auto block = [&](std::size_t rows, std::size_t columns, T* out, std::size_t row, std::size_t column, std::size_t width) {
    f(rows, columns, out, key, row, column, width);
  };
  if (local.size() != 0) for_each_block(shape, part, local.data(), block);
  for (std::size_t axis = 0; axis < target.size(); ++axis)
    if (target[axis].is_partial()) local = as_term(mesh.comm(axis), local, target[axis].reduction);
  return DTensor<T, Exec>::from_local(mesh, local, target, shape);
}

}  // namespace detail

/// Normal numbers with this mean and standard deviation. Nothing is communicated.
template <weft::detail::Real T, class Exec>
DTensor<T, Exec> normal(Device<Exec>& device, const DeviceMesh& mesh, const Shape& shape, const Placements& placements,
                        std::uint64_t seed, double mean = 0, double deviation = 1) {
  return detail::filled<T>(device, mesh, shape, placements, key_of(seed, site_of("dtensor")),
                           [&](const auto&... block) { kernels::initialise_normal<T>(device, block..., mean, deviation); });
}
/// Uniform numbers in [low, high).
template <weft::detail::Real T, class Exec>
DTensor<T, Exec> uniform(Device<Exec>& device, const DeviceMesh& mesh, const Shape& shape, const Placements& placements,
                         std::uint64_t seed, double low = 0, double high = 1) {
  return detail::filled<T>(device, mesh, shape, placements, key_of(seed, site_of("dtensor")),
                           [&](const auto&... block) { kernels::initialise_uniform<T>(device, block..., low, high); });
}
/// All elements equal to `value`.
template <weft::detail::Real T, class Exec>
DTensor<T, Exec> full(Device<Exec>& device, const DeviceMesh& mesh, const Shape& shape, const Placements& placements,
                      double value) {
  return detail::filled<T>(device, mesh, shape, placements, 0,
                           [&](const auto&... block) { kernels::initialise_constant<T>(device, block..., value); });
}

}  // namespace weft::dtensor
