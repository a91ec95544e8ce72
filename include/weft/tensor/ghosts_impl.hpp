// SPDX-License-Identifier: Apache-2.0
#pragma once
// The plan of an exchange between the parts of a graph. Definitions for tensor/ghosts.hpp.

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/tensor/ghosts.hpp>

namespace weft::detail {

WEFT_INLINE void require_graph_rows(const Shape& x, std::size_t rows) {
  if (x.rank() == 0 || x[0] != rows)
    throw_error<ShapeError>({"to<Ghosts<axis>> and back: ", x.text(), ", and the graph has ", rows, " rows on this rank"});
}

WEFT_INLINE void EdgesOfSamples::require(std::size_t edge, const char* end, std::int64_t id) const {
  const std::size_t sample = edge * samples / edges, theirs = std::size_t(id) / nodes;
  if (theirs != sample)
    throw_error<UsageError>({"graph_part: edge ", edge, ", of sample ", sample, ", has ", end, " ", id, ", a node of sample ",
                             theirs, ": ids of sample ", sample, " are ", sample * nodes, " to ", (sample + 1) * nodes - 1});
}

/// The nodes of all ranks: rank r has nodes first[r] to first[r + 1] of each sample.
struct NodesOfRanks {
  NodesOfRanks(const Communicator& comm, const GraphExtents& here) : samples(here.samples), first(std::size_t(comm.size()) + 1) {
    std::vector<std::uint64_t> all(2 * std::size_t(comm.size()));
    const std::array<std::uint64_t, 2> mine{here.samples, here.nodes};
    comm.all_gather(mine, all);
    for (std::size_t rank = 0; rank + 1 < first.size(); ++rank) {
      const std::uint64_t theirs = all[2 * rank], nodes = all[2 * rank + 1];
      if (theirs != all[0])
        throw_error<ShapeError>(
            {"graph_part: ", all[0], " samples on rank 0 of ", comm.axis(), " and ", theirs, " on rank ", rank});
      if (nodes == 0)
        throw_error<UsageError>({"graph_part: rank ", rank, " of ", comm.axis(), "(", comm.size(),
                                 ") has no nodes: give each rank "
                                 "some, or take fewer ranks"});
      first[rank + 1] = first[rank] + nodes;
    }
    constexpr std::uint64_t most = std::numeric_limits<std::int32_t>::max();
    if (of_sample() > most / std::max<std::size_t>(1, samples))
      throw_error<ShapeError>({"graph_part: ", samples, " samples of ", of_sample(), " nodes, and ids name at most ", most});
  }
  std::size_t of_sample() const { return first.back(); }
  std::size_t nodes(std::size_t rank) const { return first[rank + 1] - first[rank]; }

  /// The rank of a node, and the node's row there. Throws UsageError for an id that is no node.
  std::pair<std::size_t, std::size_t> place(std::int64_t id, const char* end, std::size_t edge) const {
    if (std::cmp_less(id, 0) || std::cmp_greater_equal(id, samples * of_sample()))
      throw_error<UsageError>({"graph_part: edge ", edge, " has ", end, " ", id, ", and there are ", samples * of_sample(),
                               " nodes, ", of_sample(), " of each sample"});
    const std::size_t sample = std::size_t(id) / of_sample(), node = std::size_t(id) % of_sample(),
                      rank = std::size_t(std::upper_bound(first.begin(), first.end(), node) - first.begin()) - 1;
    return {rank, sample * nodes(rank) + node - first[rank]};
  }

  std::size_t samples;
  std::vector<std::size_t> first;
};

WEFT_INLINE GhostPlan plan_ghosts(const Communicator& comm, const GraphExtents& here, std::span<const std::int64_t> senders,
                                  std::span<const std::int64_t> receivers) {
  if (comm.rehearsed())
    throw_error<UsageError>({"graph_part: a rehearsal has no ids, so the nodes of other ranks that ", comm.axis(), "(",
                             comm.size(), ") needs are not known: rehearse one rank of ", comm.axis()});
  if (senders.size() != receivers.size())
    throw_error<UsageError>(
        {"graph_part: ", senders.size(), " senders and ", receivers.size(), " receivers: an edge has one of each"});
  const NodesOfRanks all(comm, here);
  const EdgesOfSamples edges{all.samples, senders.size(), all.of_sample()};
  const std::size_t ranks = std::size_t(comm.size()), self = std::size_t(comm.rank());
  GhostPlan plan;
  plan.own = all.samples * here.nodes;
  for (std::size_t edge = 0; edge < receivers.size(); ++edge) {
    const auto [rank, row] = all.place(receivers[edge], "receiver", edge);
    edges.require(edge, "receiver", receivers[edge]);
    if (rank != self)
      throw_error<UsageError>({"graph_part: edge ", edge, " of rank ", self, " of ", comm.axis(), " has receiver ",
                               receivers[edge], ", a node of rank ", rank, ": an edge belongs to the rank of its receiver"});
    plan.into.push_back(std::int32_t(row));
  }
  using Place = std::pair<std::size_t, std::size_t>;  // rank and row there
  std::vector<Place> places, lacked;
  for (std::size_t edge = 0; edge < senders.size(); ++edge) {
    places.push_back(all.place(senders[edge], "sender", edge));
    edges.require(edge, "sender", senders[edge]);
    if (places.back().first != self) lacked.push_back(places.back());
  }
  std::sort(lacked.begin(), lacked.end());
  lacked.erase(std::unique(lacked.begin(), lacked.end()), lacked.end());
  for (const Place& place : places) {
    const std::size_t behind = std::size_t(std::lower_bound(lacked.begin(), lacked.end(), place) - lacked.begin());
    plan.from.push_back(std::int32_t(place.first == self ? place.second : plan.own + behind));
  }

  std::vector<std::size_t> received(ranks), sent(ranks);
  std::vector<std::uint64_t> asked(ranks), asks(ranks);
  std::vector<std::int32_t> rows;
  for (const Place& place : lacked) ++received[place.first], rows.push_back(std::int32_t(place.second));
  std::copy(received.begin(), received.end(), asks.begin());
  comm.all_to_all(asks, asked);
  std::copy(asked.begin(), asked.end(), sent.begin());
  std::size_t count = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    count += sent[rank];
    if (sent[rank] + received[rank] != 0) plan.peers.push_back({int(rank), sent[rank], received[rank]});
  }
  plan.sent.resize(count);
  comm.all_to_all_v(rows, received, plan.sent, sent);
  return plan;
}

}  // namespace weft::detail
