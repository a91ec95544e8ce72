// SPDX-License-Identifier: Apache-2.0
#pragma once
// The steps of a redistribution, each a function of one rank's elements. It chooses the collective, and packs pieces of uneven
// size into the collective's buffers.
//
//   from           to             data that moves
//   shard(d)       replicate      all-gather
//   shard(d)       shard(e)       all-to-all
//   partial        replicate      all-reduce
//   partial        shard(d)       reduce-scatter
//   replicate      shard(d)       nothing: a slice
//   replicate      partial        nothing: for a sum, ranks after the first hold zeros
//   shard(d)       partial(sum)   nothing: zeros around the shard
//
// Users call DTensor::redistribute.

#include <cstddef>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/dtensor/sharding.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>

namespace weft::dtensor::detail {

using weft::detail::Around;
using weft::detail::copy_rows;
using weft::detail::with_extent;

// Copies the elements [first, first + length) of a dim of `whole` to or from a separate array.
template <class Exec, class T>
void take_slice(Device<Exec>& device, const Shape& whole, std::size_t dim, const Chunk& chunk, const T* from, T* to) {
  const Around around(whole, dim);
  const std::size_t width = chunk.length * around.inner;
  copy_rows(device, around.outer, width, from + chunk.first * around.inner, around.extent * around.inner, to, width);
}
template <class Exec, class T>
void put_slice(Device<Exec>& device, const Shape& whole, std::size_t dim, const Chunk& chunk, const T* from, T* to) {
  const Around around(whole, dim);
  const std::size_t width = chunk.length * around.inner;
  copy_rows(device, around.outer, width, from, width, to + chunk.first * around.inner, around.extent * around.inner);
}

// The chunks of `extent` on all ranks of an axis.
inline std::vector<Chunk> chunks_of(std::size_t extent, int ranks) {
  std::vector<Chunk> chunks;
  for (int rank = 0; rank < ranks; ++rank) chunks.push_back(chunk_of(extent, std::size_t(ranks), std::size_t(rank)));
  return chunks;
}
// The number of elements of each rank's piece; `shape` is any rank's shape and only its dim `dim` is replaced.
inline std::vector<std::size_t> counts_of(const std::vector<Chunk>& chunks, const Shape& shape, std::size_t dim) {
  std::vector<std::size_t> counts;
  for (const Chunk& chunk : chunks) counts.push_back(with_extent(shape, dim, chunk.length).size());
  return counts;
}

template <class X>
X slice(const Communicator& comm, const X& x, std::size_t dim) {
  const Chunk chunk = chunk_of(x.shape()[dim], std::size_t(comm.size()), std::size_t(comm.rank()));
  X y(x.device(), with_extent(x.shape(), dim, chunk.length));
  take_slice(x.device(), x.shape(), dim, chunk, x.data(), y.data());
  return y;
}

template <class X>
X gather(const Communicator& comm, const X& x, std::size_t dim, std::size_t extent) {
  const auto chunks = chunks_of(extent, comm.size());
  X y(x.device(), with_extent(x.shape(), dim, extent));
  const auto counts = counts_of(chunks, x.shape(), dim);
  if (Around(y.shape(), dim).outer == 1) {
    comm.all_gather_v(x, y, counts);
    return y;
  }
  const X pieces(x.device(), y.shape());
  comm.all_gather_v(x, pieces, counts);
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < chunks.size(); at += counts[rank++])
    put_slice(x.device(), y.shape(), dim, chunks[rank], pieces.data() + at, y.data());
  return y;
}

template <class X>
X scatter_reduced(const Communicator& comm, const X& x, std::size_t dim, Reduction reduction) {
  const auto chunks = chunks_of(x.shape()[dim], comm.size());
  const auto counts = counts_of(chunks, x.shape(), dim);
  X y(x.device(), with_extent(x.shape(), dim, chunks[std::size_t(comm.rank())].length));
  if (Around(x.shape(), dim).outer == 1) {
    comm.reduce_scatter_v(x, y, counts, reduction);
    return y;
  }
  const X pieces(x.device(), x.shape());
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < chunks.size(); at += counts[rank++])
    take_slice(x.device(), x.shape(), dim, chunks[rank], x.data(), pieces.data() + at);
  comm.reduce_scatter_v(pieces, y, counts, reduction);
  return y;
}

// Moves the shard from dim `from` (of `extent` elements over all ranks) to dim `to`.
template <class X>
X exchange(const Communicator& comm, const X& x, std::size_t from, std::size_t extent, std::size_t to) {
  const std::size_t me = std::size_t(comm.rank());
  const auto have = chunks_of(extent, comm.size()), want = chunks_of(x.shape()[to], comm.size());
  const auto sent = counts_of(want, x.shape(), to);
  const X outgoing(x.device(), x.shape());
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < want.size(); at += sent[rank++])
    take_slice(x.device(), x.shape(), to, want[rank], x.data(), outgoing.data() + at);
  X y(x.device(), with_extent(with_extent(x.shape(), from, extent), to, want[me].length));
  const auto received = counts_of(have, y.shape(), from);
  const X incoming(x.device(), y.shape());
  comm.all_to_all_v(outgoing, sent, incoming, received);
  at = 0;
  for (std::size_t rank = 0; rank < have.size(); at += received[rank++])
    put_slice(x.device(), y.shape(), from, have[rank], incoming.data() + at, y.data());
  return y;
}

template <class X>
X reduced(const Communicator& comm, const X& x, Reduction reduction) {
  X y(x.device(), x.shape());
  comm.all_reduce(x, y, reduction);
  return y;
}

// Makes a whole value a term of a reduction: unchanged for max, min and average; for a sum only the first rank keeps it.
template <class X>
X as_term(const Communicator& comm, const X& x, Reduction reduction) {
  if (reduction != Reduction::sum || comm.rank() == 0) return x;
  X y(x.device(), x.shape());
  weft::detail::fill_zero(x.device(), y.data(), y.size());
  return y;
}

// Makes a shard a term of a sum by padding it with zeros.
template <class X>
X embedded(const Communicator& comm, const X& x, std::size_t dim, std::size_t extent) {
  X y(x.device(), with_extent(x.shape(), dim, extent));
  weft::detail::fill_zero(x.device(), y.data(), y.size());
  put_slice(x.device(), y.shape(), dim, chunk_of(extent, std::size_t(comm.size()), std::size_t(comm.rank())), x.data(), y.data());
  return y;
}

/// Executes one step. `extent` is the extent of the dim that `step.from` shards, after the division by earlier axes.
template <class X>
X apply(const Communicator& comm, const X& x, const Step& step, std::size_t extent) {
  const auto &from = step.from, &to = step.to;
  if (from.is_shard() && to.is_replicate()) return gather(comm, x, std::size_t(from.dim), extent);
  if (from.is_shard() && to.is_shard()) return exchange(comm, x, std::size_t(from.dim), extent, std::size_t(to.dim));
  if (from.is_shard()) return embedded(comm, x, std::size_t(from.dim), extent);
  if (from.is_partial() && to.is_shard()) return scatter_reduced(comm, x, std::size_t(to.dim), from.reduction);
  if (from.is_partial()) return reduced(comm, x, from.reduction);
  return to.is_shard() ? slice(comm, x, std::size_t(to.dim)) : as_term(comm, x, to.reduction);
}

}  // namespace weft::dtensor::detail
