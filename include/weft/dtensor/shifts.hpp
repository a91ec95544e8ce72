// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements of a dim that one axis cuts, moved to other places of that dim: slices, concatenations and their gradients send only
// the elements whose rank changes.
//
//   // x[2:6] of 8 elements on two ranks: each has its half already.
//   shifted("slice", dim, shape, rule, std::array{Shifted<D>{x, {.extent = 8, .wanted = 4, .by = -2}}})

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include <weft/dtensor/apply.hpp>
#include <weft/dtensor/redistribute.hpp>

namespace weft::dtensor::detail {

/// Element i of a dim of `extent` elements goes to place i + by of one of `wanted` elements, or is dropped if there is no such
/// place. Ranks have chunks of both.
struct DimShift {
  std::size_t extent, wanted;
  std::ptrdiff_t by;
};
/// The elements of the chunk `have` that go to the chunk `want`, by their former places.
inline Chunk common_elements(const DimShift& shift, const Chunk& have, const Chunk& want) {
  const auto first = std::max(std::ptrdiff_t(have.first), std::ptrdiff_t(want.first) - shift.by),
             last = std::min(std::ptrdiff_t(have.first + have.length), std::ptrdiff_t(want.first + want.length) - shift.by);
  return last <= first ? Chunk{have.first, 0} : Chunk{std::size_t(first), std::size_t(last - first)};
}
/// The number of elements that this rank receives from others.
inline std::size_t received_elements(const DimShift& shift, std::size_t ranks, std::size_t rank) {
  std::size_t count = 0;
  for (std::size_t other = 0; other < ranks; ++other)
    if (other != rank)
      count += common_elements(shift, chunk_of(shift.extent, ranks, other), chunk_of(shift.wanted, ranks, rank)).length;
  return count;
}

/// Moves the elements of x to their places in y, whose other elements stay.
template <class X>
void shift_along(const Communicator& comm, const X& x, std::size_t dim, const DimShift& shift, const X& y) {
  const auto have = chunks_of(shift.extent, comm.size()), want = chunks_of(shift.wanted, comm.size());
  const std::size_t me = std::size_t(comm.rank());
  std::vector<Chunk> sent, received;
  for (std::size_t rank = 0; rank < have.size(); ++rank) {
    sent.push_back(common_elements(shift, have[me], want[rank]));
    received.push_back(common_elements(shift, have[rank], want[me]));
  }
  const auto sent_counts = counts_of(sent, x.shape(), dim), received_counts = counts_of(received, x.shape(), dim);
  const auto total = [](const std::vector<Chunk>& chunks) {
    std::size_t sum = 0;
    for (const Chunk& chunk : chunks) sum += chunk.length;
    return sum;
  };
  const X outgoing(x.device(), with_extent(x.shape(), dim, total(sent))),
      incoming(x.device(), with_extent(x.shape(), dim, total(received)));
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < sent.size(); at += sent_counts[rank++])
    if (sent_counts[rank] != 0)
      take_slice(x.device(), x.shape(), dim, {sent[rank].first - have[me].first, sent[rank].length}, x.data(),
                 outgoing.data() + at);
  comm.all_to_all_v(outgoing, sent_counts, incoming, received_counts);
  at = 0;
  for (std::size_t rank = 0; rank < received.size(); at += received_counts[rank++]) {
    if (received_counts[rank] == 0) continue;
    const auto first = std::size_t(std::ptrdiff_t(received[rank].first) + shift.by) - want[me].first;
    put_slice(x.device(), y.shape(), dim, {first, received[rank].length}, incoming.data() + at, y.data());
  }
}

/// The axis of several ranks that cuts this dim, if it is the only one.
template <class D>
std::optional<std::size_t> only_axis_of(const D& x, int dim) {
  std::optional<std::size_t> found;
  for (std::size_t axis = 0; axis < x.mesh().axes(); ++axis) {
    if (!(x.placements()[axis] == shard(dim)) || x.mesh().comm(axis).size() == 1) continue;
    if (found) return std::nullopt;
    found = axis;
  }
  return found;
}

template <class D>
struct Shifted {
  D x;
  DimShift shift;
};
/// The operands' elements in a tensor of `shape`, with zeros in places that get none; its placements are theirs. Nothing if
/// they are placed differently, or if it costs no less to move the operands as `rule` wants them.
template <class D, std::size_t N>
std::optional<D> shifted(std::string_view name, int dim, const Shape& shape, const OperationRule& rule,
                         const std::array<Shifted<D>, N>& operands) {
  const D& x = operands[0].x;
  const Placements& placements = x.placements();
  const auto axis = only_axis_of(x, dim);
  if (!axis || x.mesh().state().refusing) return std::nullopt;
  std::vector<OperandInfo> infos;
  for (const auto& operand : operands) {
    if (!(operand.x.placements() == placements)) return std::nullopt;
    infos.push_back(info_of(operand.x));
  }
  for (const AxisPlacement& one : placements)
    if (!rule.moves && one.is_partial() && one.reduction != Reduction::sum && one.reduction != Reduction::average)
      return std::nullopt;
  std::vector<AxisPlace> places = x.mesh().places();
  const Choice moved = choose(rule, infos, shape, places);
  double cost = 0;
  for (std::size_t i = 0; i < N; ++i)
    cost += moved_bytes(infos[i].shape, infos[i].element_bytes, places, infos[i].placements, moved.operands[i], true);
  const std::size_t ranks = places[*axis].ranks;
  std::size_t most = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::size_t count = 0;
    for (const auto& operand : operands) count += received_elements(operand.shift, ranks, rank);
    most = std::max(most, count);
  }
  for (AxisPlace& place : places) place.rank = 0;
  const double bytes =
      double(part_of(with_extent(shape, std::size_t(dim), 1), places, placements).shape.size() * most * infos[0].element_bytes);
  if (places[*axis].cost * bytes >= cost) return std::nullopt;
  note_operation(x.mesh(), name, infos, {std::vector<Placements>(N, placements), placements, 0}, shape);
  const Communicator& comm = x.mesh().comm(*axis);
  const D y = unset_result<typename D::value_type>(x, shape, placements);
  const auto& local = y.to_local();
  weft::detail::fill_zero(local.device(), local.data(), local.size());
  for (const auto& operand : operands) shift_along(comm, operand.x.to_local(), std::size_t(dim), operand.shift, local);
  note_inside(x.mesh(), name, comm.axis(), bytes);
  return y;
}

}  // namespace weft::dtensor::detail
