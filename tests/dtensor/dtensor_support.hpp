// SPDX-License-Identifier: Apache-2.0
#pragma once
// Random redistributions compared with an oracle without collectives. It gathers the elements of all ranks and checks, for every
// element of the whole and every copy of it, that the ranks' terms reduce to its value.

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include <weft/core/philox.hpp>
#include <weft/dtensor/dtensor.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft_test {

using namespace weft;
using dtensor::Placements;

/// Runs f(world) on this number of thread ranks; their failures are the test's.
template <class F>
void on(int ranks, F&& f) {
  CHECK(runtime::run(runtime::RunOptions{.ranks = ranks}, f) == 0);
}

/// torch.chunk, by making its list: the index of an extent's elements on one rank.
inline std::vector<std::size_t> chunk_list(const std::vector<std::size_t>& elements, std::size_t ranks, std::size_t rank) {
  const std::size_t each = (elements.size() + ranks - 1) / ranks;
  std::vector<std::size_t> mine;
  for (std::size_t i = 0; i < elements.size(); ++i)
    if (i / each == rank) mine.push_back(elements[i]);
  return mine;
}

/// Global flat index of each local element of the rank at `coordinates`, in order.
inline std::vector<std::size_t> indices_of(const Shape& shape, const std::vector<dtensor::AxisPlace>& axes,
                                           const Placements& placements, const std::vector<std::size_t>& coordinates) {
  std::vector<std::size_t> flat{0};
  for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
    std::vector<std::size_t> along;
    for (std::size_t i = 0; i < shape[dim]; ++i) along.push_back(i);
    for (std::size_t axis = 0; axis < axes.size(); ++axis)
      if (placements[axis].is_shard() && placements[axis].dim == int(dim))
        along = chunk_list(along, axes[axis].ranks, coordinates[axis]);
    std::vector<std::size_t> next;
    for (const std::size_t outer : flat)
      for (const std::size_t i : along) next.push_back(outer * shape[dim] + i);
    flat = next;
  }
  return flat;
}

inline double combine(Reduction reduction, double a, double b) {
  return reduction == Reduction::max ? std::max(a, b) : reduction == Reduction::min ? std::min(a, b) : a + b;
}

/// All ranks' elements, gathered as doubles and identified by coordinates: the values of the whole, and the number of
/// inconsistent ones. `reference` empty: take the values from the first copy.
struct Whole {
  std::vector<double> values;
  std::size_t wrong = 0;
};
template <class D>
Whole look_at(const Communicator& everyone, const D& x, const std::vector<double>& reference = {}) {
  const auto axes = x.mesh().places();
  const auto mine = copy_to_host(x.to_local());
  std::vector<double> local(mine.begin(), mine.end());
  std::vector<std::uint64_t> coordinates, all_coordinates(axes.size() * std::size_t(everyone.size()));
  for (const auto& axis : axes) coordinates.push_back(axis.rank);
  everyone.all_gather(coordinates, all_coordinates);
  const std::uint64_t count = local.size();
  std::vector<std::uint64_t> counts_wide(std::size_t(everyone.size()));
  everyone.all_gather(std::span<const std::uint64_t>(&count, 1), counts_wide);
  const std::vector<std::size_t> counts(counts_wide.begin(), counts_wide.end());
  std::size_t total = 0;
  for (const std::size_t n : counts) total += n;
  std::vector<double> all(total);
  everyone.all_gather_v(local, all, counts);
  // A copy: coordinates on the axes that are not partial.
  std::map<std::vector<std::size_t>, std::map<std::size_t, double>> copies;
  std::map<std::vector<std::size_t>, std::map<std::size_t, std::size_t>> terms;
  double divisor = 1;
  for (std::size_t axis = 0; axis < axes.size(); ++axis)
    if (x.placements()[axis].is_partial() && x.placements()[axis].reduction == Reduction::average)
      divisor *= double(axes[axis].ranks);
  Reduction reduction = Reduction::sum;
  for (const auto& placement : x.placements())
    if (placement.is_partial()) reduction = placement.reduction;
  Whole whole;
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const std::vector<std::size_t> place(all_coordinates.begin() + std::ptrdiff_t(rank * axes.size()),
                                         all_coordinates.begin() + std::ptrdiff_t((rank + 1) * axes.size()));
    const auto indices = indices_of(x.shape(), axes, x.placements(), place);
    if (indices.size() != counts[rank]) return {{}, 1};
    std::vector<std::size_t> copy = place;
    for (std::size_t axis = 0; axis < axes.size(); ++axis)
      if (!x.placements()[axis].is_replicate()) copy[axis] = 0;
    for (const std::size_t index : indices) {
      const double value = all[at++];
      auto& sum = copies[copy];
      sum[index] = terms[copy][index]++ == 0 ? value : combine(reduction, sum[index], value);
    }
  }
  for (const auto& [copy, elements] : copies) {
    if (elements.size() != x.shape().size()) ++whole.wrong;
    if (whole.values.empty())
      for (const auto& [index, value] : elements) whole.values.push_back(value / divisor);
    for (const auto& [index, value] : elements) {
      const double expected = reference.empty() ? whole.values[index] : reference[index];
      if (value / divisor != expected) ++whole.wrong;
    }
  }
  return whole;
}

template <class T>
Placements random_placements(std::mt19937& random, std::size_t axes, std::size_t rank) {
  const Reduction linear[] = {Reduction::sum, Reduction::average};
  const int kind = int(random() % (std::is_integral_v<T> ? 3 : 4));  // one that commutes with itself
  Placements placements;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const auto choice = random() % 4;
    if (choice == 0) placements.push_back(dtensor::replicate());
    else if (choice == 1)
      placements.push_back(dtensor::partial(kind == 0   ? Reduction::max
                                            : kind == 1 ? Reduction::min
                                            : kind == 2 ? Reduction::sum
                                                        : linear[random() % 2]));
    else placements.push_back(dtensor::shard(int(random() % rank)));
  }
  return placements;
}

/// `trials` chains of three redistributions of random tensors; returns the number of wrong elements.
template <class T>
std::size_t check_random(World& world, const dtensor::DeviceMesh& mesh, std::size_t trials, unsigned seed) {
  const auto axes = mesh.places();
  std::mt19937 random(seed);
  std::size_t wrong = 0;
  for (std::size_t trial = 0; trial < trials; ++trial) {
    const std::size_t rank = 1 + random() % 4;
    Shape shape = rank == 1 ? Shape{0} : rank == 2 ? Shape{0, 0} : rank == 3 ? Shape{0, 0, 0} : Shape{0, 0, 0, 0};
    for (std::size_t dim = 0; dim < rank; ++dim) shape[dim] = 1 + random() % (rank > 2 ? 5 : 11);
    const Placements from = random_placements<T>(random, axes.size(), rank);
    std::vector<std::size_t> here;
    for (const auto& axis : axes) here.push_back(axis.rank);
    const auto indices = indices_of(shape, axes, from, here);
    // Terms differ between ranks only on partial axes. Small multiples of the averages' divisors: exact in every type.
    std::uint64_t term = 0;
    int divisor = 1;
    for (std::size_t axis = 0; axis < axes.size(); ++axis)
      if (from[axis].is_partial()) {
        term = term * 16 + here[axis];
        if (from[axis].reduction == Reduction::average) divisor *= int(axes[axis].ranks);
      }
    const dtensor::Part part = dtensor::part_of(shape, axes, dtensor::checked(shape, axes, from));
    Tensor<T, DefaultDevice::execution_space> local(world.device(), part.shape);
    std::vector<T> values;
    for (const std::size_t index : indices) values.push_back(T(float(divisor * (int(key_of(trial, index, term) % 7) - 3))));
    if (values.size() != local.size()) return 1;
    copy_from_host(local, std::span<const T>(values));
    auto x = DTensor<T>::from_local(mesh, local, from);
    if (!(x.shape() == shape)) ++wrong;
    const Whole whole = look_at(world.communicator(), x);
    wrong += whole.wrong;
    for (int link = 0; link < 3; ++link) {
      Placements to = random_placements<T>(random, axes.size(), rank);
      if (trial % 2 == 0 && to.back().is_shard()) to.back().dim -= int(rank);
      x = x.redistribute(to);
      wrong += look_at(world.communicator(), x, whole.values).wrong;
    }
    const auto full = copy_to_host(x.full_tensor());
    for (std::size_t i = 0; i < full.size(); ++i) wrong += double(full[i]) != whole.values[i];
    const auto again =
        distribute_tensor(mesh, x.full_tensor(), from, trial % 2 ? dtensor::Source::first_rank : dtensor::Source::every_rank);
    wrong += look_at(world.communicator(), again, whole.values).wrong;
  }
  return wrong;
}

}  // namespace weft_test
