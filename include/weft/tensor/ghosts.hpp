// SPDX-License-Identifier: Apache-2.0
#pragma once
// The exchange of the nodes of a graph between the ranks that its parts lie on: an irregular halo (tensor/halo.hpp). A rank has
// the rows of its nodes, and behind them copies of the nodes of other ranks from which its edges come, rank by rank. An exchange
// is one message to each rank that lacks rows of this one, and one from each whose rows it lacks.
//
//   const GhostPlan plan = plan_ghosts(comm, {samples, nodes}, senders, receivers);     // collective
//   const GhostRows<Exec> rows(device, plan);
//   const auto wide = bring_ghosts<Y>(comm, x, rows);         // [nodes, ...] -> [nodes + ghosts, ...]
//   const auto sums = send_ghosts_home<X>(comm, g, rows);     // its dual: rows of other ranks are sent home and added

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/embedding.hpp>
#include <weft/tensor/around.hpp>
#include <weft/tensor/halo.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

/// The rows that travel between this rank and another.
struct GhostPeer {
  int rank;
  std::size_t sent, received;
};

/// Each of `samples` samples has a graph, of which this rank has `nodes` nodes.
struct GraphExtents {
  std::size_t samples, nodes;
};

/// The edges of this rank in rows of its own tensors, and the rows that it sends.
struct GhostPlan {
  std::size_t own = 0;                   ///< rows of this rank's nodes
  std::vector<std::int32_t> from, into;  ///< the row of each edge's sender, which may be behind the rank's own, and receiver
  std::vector<GhostPeer> peers;          ///< by rank
  std::vector<std::int32_t> sent;        ///< rows that other ranks lack, peer by peer
};
/// The edges of all samples on this rank, in the order of the samples; each sample has as many.
struct EdgesOfSamples {
  std::size_t samples, edges, nodes;  ///< edges of all samples, nodes of each on all ranks
  /// Throws UsageError for an id of this edge that is a node of another sample than the edge's.
  void require(std::size_t edge, const char* end, std::int64_t id) const;
};
/// The plan of a rank whose edges have these ids, sample by sample. An id counts the nodes of all samples in the order of ranks:
/// node n of sample s is s * (nodes of all ranks) + n. Collective: each rank states the rows that it lacks. Throws UsageError for
/// an id that is no node or a node of another sample, an edge into a node of another rank and a rank without nodes, ShapeError
/// for ranks with other numbers of samples.
GhostPlan plan_ghosts(const Communicator& comm, const GraphExtents& here, std::span<const std::int64_t> senders,
                      std::span<const std::int64_t> receivers);

/// A plan with its rows on the device.
template <class Exec>
struct GhostRows {
  GhostRows() = default;
  GhostRows(Device<Exec>& device, const GhostPlan& plan) : own(plan.own), peers(plan.peers), sent(device, {plan.sent.size()}) {
    copy_from_host(sent, std::span<const std::int32_t>(plan.sent));
    for (const GhostPeer& peer : peers) ghosts += peer.received;
  }
  std::size_t own = 0, ghosts = 0;
  std::vector<GhostPeer> peers;
  Tensor<std::int32_t, Exec> sent;
};

/// Tags of rows on their way to a rank that lacks them, and of their gradients on the way home.
inline constexpr int ghosts_tag = 0x4a12, home_tag = 0x4a13;

/// Throws ShapeError for x of other rows than the graph.
void require_graph_rows(const Shape& x, std::size_t rows);

/// `count` rows of x from `first` on, without a copy.
template <class X>
auto some_rows(const X& x, std::size_t first, std::size_t count) {
  return view_of<decltype(raw(x))>(x, with_extent(x.shape(), 0, count), first * Around(x.shape(), 0).inner);
}

/// x's rows, and behind them those of other ranks.
template <class Y, class X, class Exec>
Y bring_ghosts(const Communicator& comm, const X& x, const GhostRows<Exec>& rows) {
  using T = typename X::value_type;
  require_graph_rows(x.shape(), rows.own);
  const Y y(x.device(), with_extent(x.shape(), 0, rows.own + rows.ghosts));
  const decltype(raw(x)) packed(x.device(), with_extent(x.shape(), 0, rows.sent.size()));
  std::vector<Request> requests;  // they end before the rows do
  std::size_t first = rows.own;
  for (const GhostPeer& peer : rows.peers) {
    if (peer.received != 0) requests.push_back(comm.recv_async(some_rows(y, first, peer.received), peer.rank, ghosts_tag));
    first += peer.received;
  }
  kernels::embedding_forward<T>(x.device(), rows.sent.size(), Around(x.shape(), 0).inner, rows.sent.data(), x.data(), 0, rows.own,
                                packed.data());
  first = 0;
  for (const GhostPeer& peer : rows.peers) {
    if (peer.sent != 0) requests.push_back(comm.send_async(some_rows(packed, first, peer.sent), peer.rank, ghosts_tag));
    first += peer.sent;
  }
  move_rows<false>(x, 0, 0, y, 0, rows.own);
  for (Request& request : requests) request.wait();
  return y;
}

/// The rows of this rank's nodes of x, plus the rows that other ranks have for them, by rank. Numerics: sums in accumulate_t, in
/// the same order in every run.
template <class Y, class X, class Exec>
Y send_ghosts_home(const Communicator& comm, const X& x, const GhostRows<Exec>& rows) {
  using T = typename X::value_type;
  using A = accumulate_t<T>;
  require_graph_rows(x.shape(), rows.own + rows.ghosts);
  const decltype(raw(x)) arrived(x.device(), with_extent(x.shape(), 0, rows.sent.size()));
  std::vector<Request> requests;
  std::size_t first = 0;
  for (const GhostPeer& peer : rows.peers) {
    if (peer.sent != 0) requests.push_back(comm.recv_async(some_rows(arrived, first, peer.sent), peer.rank, home_tag));
    first += peer.sent;
  }
  first = rows.own;
  for (const GhostPeer& peer : rows.peers) {
    if (peer.received != 0) requests.push_back(comm.send_async(some_rows(x, first, peer.received), peer.rank, home_tag));
    first += peer.received;
  }
  const Y y(x.device(), with_extent(x.shape(), 0, rows.own));
  const with_scalar_t<Y, A> sums(x.device(), y.shape());
  kernels::cast<T, A>(x.device(), y.size(), static_cast<const T*>(x.data()), sums.data());
  for (Request& request : requests) request.wait();
  kernels::embedding_backward<T>(x.device(), rows.sent.size(), Around(y.shape(), 0).inner, rows.sent.data(),
                                 static_cast<const T*>(arrived.data()), 0, rows.own, sums.data());
  kernels::cast<A, T>(x.device(), y.size(), static_cast<const A*>(sums.data()), y.data());
  return y;
}

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/tensor/ghosts_impl.hpp>
#endif
